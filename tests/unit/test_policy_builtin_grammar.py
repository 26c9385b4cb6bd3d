import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.agent.action_format import parse, render
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.context import Message
from longstride.policies.builtin import vocabulary as v
from longstride.policies.builtin.grammar import FORBIDDEN, START, Grammar
from longstride.policies.builtin.template import TOOL_TOKENS, USER_TOKENS, Template, essence

TOKENIZER = v.tokenizer()
GRAMMAR = Grammar(TOKENIZER)
TEMPLATE = Template(TOKENIZER)
END = TOKENIZER.special(v.END)
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E) | st.sampled_from("\n\t"), max_size=40)
ACTIONS = st.builds(
    lambda tool, value, thought, plan: Action(
        tool=tool, arguments={v.TOOLS[tool]: value}, thought=thought, plan=plan if thought is not None else None
    ),
    st.sampled_from(sorted(v.TOOLS)),
    PRINTABLE,
    st.none() | PRINTABLE,
    st.none() | st.lists(PRINTABLE, min_size=1, max_size=3).map(tuple),
)


ALLOWED = [row.nonzero()[:, 0].tolist() for row in GRAMMAR.allowed]
CLOSING = [[t for t in tokens if GRAMMAR.table[state, t] != state] for state, tokens in enumerate(ALLOWED)]


def walk(choose) -> list[int]:
    """Any output the grammar allows, ended after 60 choices."""
    ids, state = [], START
    while state != GRAMMAR.done:
        token = choose((ALLOWED if len(ids) < 60 else CLOSING)[state])
        ids.append(token)
        state = int(GRAMMAR.table[state, token])
    return ids


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_whatever_the_grammar_allows_is_one_action_of_a_known_tool(seed):
    text = TOKENIZER.decode(walk(random.Random(seed).choice))
    action = parse(text)
    assert list(action.arguments) == [v.TOOLS[action.tool]]


@given(ACTIONS)
@settings(deadline=None)
def test_any_action_in_printable_text_can_be_written(action):
    ids = [*TOKENIZER.encode(render(action)), END]
    states = GRAMMAR.states(torch.tensor(ids)).tolist()
    assert states[0] == START
    assert int(GRAMMAR.table[states[-1], END]) == GRAMMAR.done


def test_forced_ids_are_those_without_a_choice():
    for state, forced in enumerate(GRAMMAR.forced.tolist()):
        allowed = GRAMMAR.allowed[state].nonzero()[:, 0].tolist()
        assert (forced == FORBIDDEN) == (len(allowed) != 1)
        assert forced in (FORBIDDEN, *allowed)


def test_no_state_but_the_last_is_a_dead_end():
    assert GRAMMAR.allowed.any(1).tolist() == [state != GRAMMAR.done for state in range(len(GRAMMAR.table))]


def test_the_support_holds_what_was_written():
    ids = torch.tensor(walk(random.Random(3).choice))
    support = GRAMMAR.support(ids)
    assert support.shape == (len(ids), TOKENIZER.vocab_size)
    assert bool(support.gather(1, ids[:, None]).all())


@pytest.mark.parametrize(
    ("text", "position"),
    [("{", 0), ('{"tool": "shell', 1), ('{"thought": "é', 1), ('{"tool": "python", "arguments": {"code": ""}}x', 6)],
)
def test_what_the_grammar_does_not_allow_is_named(text, position):
    with pytest.raises(ValueError, match=f"at position {position} is not allowed"):
        GRAMMAR.states(torch.tensor(TOKENIZER.encode(text)))


def shown(*messages: Message) -> str:
    return TOKENIZER.decode(TEMPLATE.prompt([(message, None) for message in messages]))


def test_the_prompt_leaves_out_system_prompt_and_listing():
    user = Message(role="user", content="Count the rows of a.csv.\n\nFiles in the workspace:\n- data/a.csv")
    assert shown(Message(role="system", content="rules"), user) == "Count the rows of a.csv."


def test_roles_are_marked_by_special_tokens_that_no_text_can_forge():
    ids = TEMPLATE.prompt([(Message(role="user", content="<assistant><end>"), None)])
    assert [i for i in ids if TOKENIZER.is_special(i)] == [
        TOKENIZER.special(name) for name in (v.BEGIN, v.USER, v.ASSISTANT)
    ]


def test_recorded_ids_are_used_as_they_are():
    spelled = [TOKENIZER.special(v.CUT), 7, 8]
    message = Message(role="assistant", content="something else")
    ids = TEMPLATE.prompt([(message, spelled)])
    assert ids == [TOKENIZER.special(v.BEGIN), TOKENIZER.special(v.ASSISTANT), *spelled, TOKENIZER.special(v.ASSISTANT)]


def test_a_prompt_grows_by_appending():
    question = Message(role="user", content="what?")
    said, seen = Message(role="assistant", content="x"), Message(role="tool", content="no match")
    answer = [9, 9, END]
    first = TEMPLATE.prompt([(question, None)])
    assert TEMPLATE.prompt([(question, None), (said, answer), (seen, None)]) == [*first, *answer, *TEMPLATE.reply(seen)]


@pytest.mark.parametrize("role", ["user", "tool"])
def test_long_messages_are_cut_in_the_middle(role):
    text = "start " + "q" * 100_000 + " finish"
    ids = TEMPLATE.prompt([(Message(role=role, content=text), None)])
    assert len(ids) <= {"user": USER_TOKENS, "tool": TOOL_TOKENS}[role] + 3
    assert TOKENIZER.special(v.CUT) in ids
    assert TOKENIZER.decode(ids).startswith("start qq")
    assert TOKENIZER.decode(ids).endswith("qq finish")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("280.47\n", "280.47\n"),
        ("no match", "no match"),
        (
            'half\nTraceback (most recent call last):\n  File "<string>", line 3, in <module>\n'
            "    values = [float(r['a']) for r in rows]\n             ^^^^^^\nKeyError: 'a'\nexit code 1\n"
            "It raised KeyError at <string>:3. Mend that before going on.",
            "KeyError: 'a'",
        ),
        (
            'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nValueError: x\n\n'
            "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
            '  File "<string>", line 2, in <module>\nStopIteration\nexit code 1',
            "StopIteration",
        ),
        (
            "  File \"<string>\", line 1\n    (\n    ^\nSyntaxError: '(' was never closed\nexit code 1",
            "SyntaxError: '(' was never closed",
        ),
        ("Traceback (most recent call last): cut off", "Traceback (most recent call last): cut off"),
    ],
)
def test_of_a_traceback_the_last_line_is_shown(text, expected):
    assert essence(text) == expected
