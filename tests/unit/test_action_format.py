import contextlib
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.agent.action_format import EXPECTED, FormatError, parse, render
from longstride.contracts.v1.action import Action

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ACTIONS = st.builds(
    Action,
    tool=st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True),
    arguments=st.dictionaries(TEXT, VALUES, max_size=4),
    thought=st.none() | TEXT,
    plan=st.none() | st.lists(TEXT, max_size=3).map(tuple),
)
SPACE = st.text(st.sampled_from(" \t\r\n"), max_size=3)
GOOD = '{"tool": "python", "arguments": {"code": "print(1)"}}'


@given(ACTIONS, SPACE, SPACE)
@settings(deadline=None)
def test_what_is_rendered_is_parsed_back(action, before, after):
    assert parse(before + render(action) + after) == action


@given(ACTIONS, SPACE)
@settings(deadline=None)
def test_one_fence_is_tolerated(action, space):
    assert parse(f"{space}```json\n{render(action)}\n```{space}") == action


@given(ACTIONS, st.text(min_size=1).filter(str.strip))
@settings(deadline=None)
def test_anything_beside_the_object_is_an_error(action, prose):
    with pytest.raises(FormatError):
        parse(render(action) + prose)
    with pytest.raises(FormatError):
        parse(prose + render(action))


@given(st.text())
@settings(deadline=None)
def test_any_text_is_an_action_or_a_format_error(text):
    with contextlib.suppress(FormatError):
        assert isinstance(parse(text), Action)


@given(ACTIONS, st.data())
@settings(deadline=None)
def test_a_cut_answer_is_never_an_action(action, data):
    text = render(action)
    with pytest.raises(FormatError):
        parse(text[: data.draw(st.integers(0, len(text) - 1))])


def test_the_expected_form_is_an_action():
    assert parse(EXPECTED).plan == ("first", "then")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer is empty"),
        (" \n", "the answer is empty"),
        ("```json\n```", "the answer is empty"),
        ("```json\n\n```", "the answer is empty"),
        ("I will look. " + GOOD, 'expected a JSON object at offset 0, found "I will look.'),
        (f"[{GOOD}]", "expected a JSON object at offset 0"),
        (GOOD + GOOD, f"a second JSON value after the object at offset {len(GOOD)}"),
        (GOOD + "\nDone.", f'text after the object at offset {len(GOOD) + 1}: "Done."'),
        (f"```json\n{GOOD}\n``` ok", "expected a JSON object at offset 0"),
        (f"```json\n{GOOD}\n{GOOD}\n```", f"a second JSON value after the object at offset {8 + len(GOOD) + 1}"),
        ('{"tool": "python" "arguments": {}}', "not JSON at offset 18"),
        ("{'tool': 'python'}", "not JSON at offset 1"),
        ('{"tool": "python", "arguments": {"code": "a\nb"}}', "not JSON at offset 43: Invalid control character"),
        ('{"tool": "a", "tool": "b", "arguments": {}}', 'the key "tool" stands twice'),
        ('{"tool": "a", "arguments": {"x": 1, "x": 2}}', 'the key "x" stands twice'),
        ('{"tool": "a", "arguments": {"x": NaN}}', "NaN is not a JSON value"),
        ('{"tool": "a", "arguments": {"x": -Infinity}}', "-Infinity is not a JSON value"),
        ('{"tool": "a", "arguments": {"x": 1e999}}', 'the number "1e999" is too large'),
        ('{"tool": "a", "arguments": {"x": ' + "1" * 5000 + "}}", "a number of 5000 digits"),
        ('{"arguments": {}}', 'the key "tool" is missing'),
        ('{"tool": "a"}', 'the key "arguments" is missing; it holds an object'),
        ('{"tool": "a", "arguments": {}, "name": 1}', 'unknown key "name"; the keys are thought, plan, tool'),
        ('{"tool": "a", "arguments": []}', '"arguments" must be an object, not "[]"'),
        ('{"tool": "a", "arguments": "{}"}', '"arguments" must be an object'),
        ('{"tool": 1, "arguments": {}}', '"tool" must be a tool\'s name'),
        ('{"tool": "Rm -rf", "arguments": {}}', '"tool": String should match'),
        ('{"tool": "a", "arguments": {}, "thought": null}', '"thought" must be a string, not "null"'),
        ('{"tool": "a", "arguments": {}, "plan": "one"}', '"plan" must be a list of strings'),
        ('{"tool": "a", "arguments": {}, "plan": ["one", 2]}', '"plan" must be a list of strings'),
        ('{"tool": "a", "arguments": {"x": "\\u0000"}}', '"x" holds the character U+0000'),
        ('{"tool": "a", "arguments": {"x": ["\\ud800"]}}', '"x" holds the character U+D800'),
        ('{"tool": "a", "arguments": {"x": ' + "[" * 40 + "]" * 40 + "}}", "nested more than 32 deep"),
        ('{"tool": "a", "arguments": {"x": ' + "[" * 100_000, "nested more than 32 deep"),
    ],
)
def test_the_reason_says_what_is_wrong_and_where(text, reason):
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert reason in caught.value.reason
    assert EXPECTED in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_rendered_text_is_plain_json_in_one_order():
    action = Action(tool="submit", arguments={"answer": "größe"}, plan=("a",), thought="b")
    assert render(action) == '{"thought": "b", "plan": ["a"], "tool": "submit", "arguments": {"answer": "größe"}}'
    assert json.loads(render(action))["arguments"] == {"answer": "größe"}


def test_a_format_error_pickles():
    error = pickle.loads(pickle.dumps(FormatError("why")))
    assert (error.reason, str(error)) == ("why", str(FormatError("why")))
