"""Rules on tools: what is allowed, denied or asked; what cannot be a rule; what is taken out of observations."""

import time

import pytest
from pydantic import ValidationError

from longstride.agent.argument_paths import astray
from longstride.agent.redaction import redact, redact_check
from longstride.agent.tool_rules import Allowed, Denied, NeedsApproval, faults, offered, rule, too_large
from longstride.contracts.v1.action import Action, CheckResult
from longstride.contracts.v1.commands import ApproveAction, ExecuteAction, Generate, SubmitTask
from longstride.contracts.v1.tool_rules import RulesInForce, ToolRules
from longstride.tools.registry import builtin_tools
from tests.support.rehearsal import Rehearsal

TOOLS = ("shell", "write_file", "submit", "recall", "delegate", "edit_file")


def rules(**fields: object) -> ToolRules:
    return ToolRules.model_validate(fields)


def shell(command: object = "ls", **more: object) -> Action:
    return Action(tool="shell", arguments={"command": command, **more})


def play(*, calls: int = 0, submit: SubmitTask | str = "x", **fields: object) -> Rehearsal:
    counted: list[str] = []

    def recent(tool: str) -> int:
        counted.append(tool)
        return calls

    played = Rehearsal(submit, rules=RulesInForce(version=3, rules=rules(**fields)), recent_calls=recent)
    played.counted = counted  # type: ignore[attr-defined]
    return played


def test_without_rules_everything_is_allowed() -> None:
    assert rule(shell(), ToolRules(), 10**6) == Allowed()


def test_a_tool_that_is_not_listed_is_denied() -> None:
    ruling = rule(shell(), rules(tools=["submit", "recall"]), 0)
    assert ruling == Denied("the rules do not allow shell; the tools are submit, recall")


@pytest.mark.parametrize(("calls", "denied"), [(0, False), (2, False), (3, True), (9, True)])
def test_the_lowest_rate_limit_holds(calls: int, denied: bool) -> None:
    limits = [
        {"tool": "shell", "per_minute": 5},
        {"tool": "shell", "per_minute": 3},
        {"tool": "submit", "per_minute": 1},
    ]
    assert isinstance(rule(shell(), rules(rates=limits), calls), Denied) is denied
    assert isinstance(rule(Action(tool="recall"), rules(rates=limits), 99), Allowed)


@pytest.mark.parametrize(
    ("need", "action", "asked"),
    [
        ({}, shell(), True),
        ({}, Action(tool="submit"), False),
        ({"path": "$.command"}, shell(), True),
        ({"path": "$.script"}, shell(), False),
        ({"path": "$.command", "pattern": r"\brm\b"}, shell("cd x && rm -r y"), True),
        ({"path": "$.command", "pattern": r"\brm\b"}, shell("ls form"), False),
        ({"pattern": "secret"}, shell("cat secret"), True),
        ({"path": "$.files[*].path", "pattern": "^/etc/"}, shell(files=[{"path": "a"}, {"path": "/etc/shadow"}]), True),
        ({"path": "$.files[*].path", "pattern": "^/etc/"}, shell(files=[{"path": "a/etc/"}]), False),
        ({"path": "$.n", "pattern": "^[0-9]{3}"}, shell(n=1234), True),
        ({"path": "$.n", "pattern": "^[0-9]{3}"}, shell(n=12), False),
    ],
)
def test_a_person_is_asked_about_the_calls_that_a_rule_fits(need: dict[str, str], action: Action, asked: bool) -> None:
    ruling = rule(action, rules(approvals=[{"tool": "shell", **need}]), 0)
    assert isinstance(ruling, NeedsApproval) is asked


def test_arguments_that_cannot_be_looked_through_need_a_person() -> None:
    deep: object = "x"
    for _ in range(3000):
        deep = [deep]
    need = rules(approvals=[{"tool": "shell", "path": "$..*", "pattern": "never there"}])
    action = Action.model_construct(tool="shell", arguments={"command": deep}, thought=None, plan=None)
    assert isinstance(rule(action, need, 0), NeedsApproval)


def test_no_pattern_makes_an_agent_slow() -> None:
    evil = rules(approvals=[{"tool": "shell", "path": "$.command", "pattern": "^(a+)+$"}])
    begun = time.process_time()
    assert rule(shell("a" * 60_000 + "!"), evil, 0) == Allowed()
    assert time.process_time() - begun < 5, "a backtracking engine takes longer than the universe lasts"


@pytest.mark.parametrize(
    ("asked", "allowed", "shown"),
    [
        (None, None, ()),
        (("shell", "submit"), None, ("shell", "submit")),
        (None, ("submit", "shell"), ("submit", "shell")),
        (("shell", "recall", "submit"), ("submit", "shell"), ("shell", "submit")),
        (("recall",), ("submit", "shell"), ("submit",)),
    ],
)
def test_a_policy_is_shown_what_both_task_and_rules_allow(asked, allowed, shown) -> None:
    assert offered(asked, rules(tools=allowed)) == shown


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tools": ["shell"]}, "tools: without submit no task could ever be handed in"),
        ({"tools": ["submit", "fly"]}, "tools: there is no tool 'fly'; the tools are shell,"),
        ({"rates": [{"tool": "fly", "per_minute": 1}]}, "rates.0.tool: there is no tool 'fly'"),
        ({"approvals": [{"tool": "fly"}]}, "approvals.0.tool: there is no tool 'fly'"),
        ({"approvals": [{"tool": "shell", "path": "$.["}]}, "approvals.0: '$.[' is not a JSONPath"),
        ({"approvals": [{"tool": "shell", "path": "$[?@.a]"}]}, "approvals.0: '$[?@.a]' has a filter"),
        ({"approvals": [{"tool": "shell", "pattern": "(a"}]}, "approvals.0: '(a' is not a regular expression of RE2"),
        ({"redactions": [{"pattern": "(?<=a)b"}]}, "redactions.0: '(?<=a)b' is not a regular expression of RE2"),
        ({"redactions": [{"pattern": "a*"}]}, "redactions.0: 'a*' is found in no text at all"),
    ],
)
def test_rules_that_cannot_hold_are_refused_with_a_sentence(fields: dict[str, object], told: str) -> None:
    assert [told in fault for fault in faults(rules(**fields), TOOLS)] == [True]


SCHEMAS = {spec.name: spec.parameters for spec in builtin_tools().specs(TOOLS)}


@pytest.mark.parametrize(
    ("tool", "path", "why"),
    [
        ("shell", "$.comand", "there is no 'comand' in $; there is command, timeout_s"),
        ("shell", "$..comand", "there is no 'comand' in $; there is command, timeout_s"),
        ("shell", "$['command', 'cmd']", "there is no 'cmd' in $; there is command, timeout_s"),
        ("shell", "$.command.text", "there is no 'text' in $['command']; it is one value"),
        ("shell", "$.command[0]", "there is no 0 in $['command']; it is one value"),
        ("edit_file", "$.old.x", "there is no 'x' in $['old']; it is one value"),
        ("delegate", "$.tasks.instruction", "no 'instruction' in $['tasks']; it holds a list: give [*] or a number"),
        ("delegate", "$.tasks[*].text", "there is no 'text' in $['tasks'][*]; there is after, instruction, name"),
    ],
)
def test_a_path_that_finds_nothing_in_a_tools_arguments_is_refused(tool: str, path: str, why: str) -> None:
    (fault,) = faults(rules(approvals=[{"tool": tool, "path": path}]), TOOLS, SCHEMAS)
    assert fault.startswith(f"approvals.0.path: {path!r} finds nothing in the arguments of {tool}: ")
    assert fault.endswith(why)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("$.a.b", None),
        ("$..b", None),
        ("$.a.c", "there is no 'c' in $['a']; there is b"),
        ("$..c", "there is no 'c' in $; there is a, b"),
    ],
)
def test_nested_alternatives_are_followed_once_each(path: str, why: str | None) -> None:
    """Followed one by one they are 2 to the power of 64."""
    nested = {f"A{n}": {"anyOf": [{"$ref": f"#/$defs/A{n + 1}"}, {"$ref": f"#/$defs/A{n + 1}"}]} for n in range(64)}
    last = {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": False}
    first = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A0"}}, "additionalProperties": False}
    assert astray(path, {**first, "$defs": {**nested, "A64": last}}) == why


def test_alternatives_that_refer_to_themselves_end() -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "string"}]}
    assert astray("$.a.b", {"properties": {"a": loop}, "$defs": {"loop": loop}}) is not None


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ("shell", "$"),
        ("shell", "$.*"),
        ("shell", "$..command"),
        ("shell", "$['command', 'timeout_s']"),
        ("delegate", "$.tasks[0].instruction"),
        ("delegate", "$.tasks[1:].after[*]"),
        ("delegate", "$..name"),
        ("submit", "$.artifacts[-1]"),
        ("open", "$.anything.at[2].all"),
        ("tree", "$.child.child.child.name"),
        ("tree", "$..name"),
    ],
)
def test_a_path_that_may_find_something_is_sound(tool: str, path: str) -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/T"}, "name": {"type": "string"}}}
    schemas = {
        **SCHEMAS,
        "open": {"type": "object"},
        "tree": {**tree, "additionalProperties": False, "$defs": {"T": {**tree, "additionalProperties": False}}},
    }
    wanted = rules(approvals=[{"tool": tool, "path": path}])
    assert list(faults(wanted, (*TOOLS, "open", "tree"), schemas)) == []


@pytest.mark.parametrize(
    "fields",
    [{"tools": []}, {"rates": [{"tool": "shell", "per_minute": 0}]}, {"wings": 2}, {"redactions": [{"pattern": ""}]}],
)
def test_rules_of_another_shape_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        rules(**fields)


def test_sound_rules_have_no_faults() -> None:
    assert list(faults(rules(tools=["submit"], redactions=[{"pattern": "a+"}]), TOOLS)) == []
    assert list(faults(ToolRules(), TOOLS)) == []


# What is taken out


def test_every_match_is_replaced_rule_by_rule() -> None:
    out = rules(redactions=[{"pattern": "AK[0-9]+"}, {"pattern": "ärger", "replacement": r"\0!"}]).redactions
    assert redact("AK12, Ärger: ärgerAK3", out) == r"[redacted], Ärger: \0![redacted]"
    assert redact("nothing", out) == "nothing"
    assert redact("a" * 9000, rules(redactions=[{"pattern": "a"}]).redactions, most=8192).startswith("[redacted]" * 800)


def test_a_check_that_quotes_output_is_redacted_too() -> None:
    check = CheckResult(name="c", passed=False, score=0, detail="got AK12", error="no AK9")
    out = redact_check(check, rules(redactions=[{"pattern": "AK[0-9]+"}]).redactions)
    assert (out.detail, out.error, out.name) == ("got [redacted]", "no [redacted]", "c")


# In the planner's mind


def test_a_denied_call_is_an_observation_without_a_dispatch() -> None:
    played = play(tools=["submit"]).start().propose(command="ls")
    assert played.sent(ExecuteAction) == []
    (generate,) = played.sent(Generate)
    assert (generate.step, generate.tools) == (2, ("submit",))
    assert generate.context.tail[-1].content.startswith("the rules do not allow shell; the tools are submit")
    assert (played.task.turns[-1].status, played.task.phase) == ("denied", "thinking")


def test_the_planners_own_tools_are_under_the_rules_too() -> None:
    played = play(tools=["submit"]).start().propose("recall", step=1)
    assert played.task.turns[-1].status == "denied"


def test_calls_are_counted_only_where_a_limit_is() -> None:
    from longstride.agent.decision import CountCall

    played = play(calls=2, rates=[{"tool": "shell", "per_minute": 3}]).start().propose(command="ls")
    assert CountCall("shell") in played.last.effects
    assert played.counted == ["shell"]
    played.observe().propose("read_file", path="a")
    assert (played.counted, CountCall("read_file") in played.last.effects) == (["shell"], False)
    over = play(calls=3, rates=[{"tool": "shell", "per_minute": 3}]).start().propose(command="ls")
    assert (over.task.turns[-1].status, CountCall("shell") in over.last.effects) == ("denied", False)


def test_an_approval_by_rule_parks_the_task_and_is_counted_when_it_is_sent_out() -> None:
    from longstride.agent.decision import CountCall

    need = {"tool": "shell", "path": "$.command", "pattern": "rm", "question": "really?"}
    played = play(approvals=[need], rates=[{"tool": "shell", "per_minute": 3}]).start().propose(command="rm a")
    assert (played.task.phase, played.events[-1].why) == ("awaiting_approval", "really?")
    assert CountCall("shell") not in played.last.effects
    played.hear(ApproveAction(step=1, approved=True, by="ada"))
    (command,) = played.sent(ExecuteAction)
    assert (command.approved, CountCall("shell") in played.last.effects, played.task.approver) == (True, True, "ada")
    played.observe().propose(command="ls")
    assert (len(played.sent(ExecuteAction)), played.task.approver) == (1, None)


def test_a_task_keeps_the_rules_it_was_accepted_under_and_its_commands_carry_the_redactions() -> None:
    played = play(redactions=[{"pattern": "AK[0-9]+"}], tools=["shell", "submit"]).start().propose(command="ls")
    (command,) = played.sent(ExecuteAction)
    assert [redaction.pattern for redaction in command.redactions] == ["AK[0-9]+"]
    assert (command.tools, played.task.rules_version) == (("shell", "submit"), 3)


def test_what_the_planner_answers_itself_is_redacted() -> None:
    played = play(redactions=[{"pattern": "of 8"}]).start()
    played.propose("delegate", tasks=[{"instruction": "x"}] * 9)
    assert "are left" in played.task.context.tail[-1].content
    assert "0 of 8" not in played.task.context.tail[-1].content
    assert "[redacted] are left" in played.task.context.tail[-1].content


def test_a_part_of_a_task_is_the_same_agents() -> None:
    submit = SubmitTask(instruction="x", agent="careful")
    played = play(submit=submit).start().propose("delegate", tasks=[{"instruction": "y"}])
    assert [part.agent for part in played.sent(SubmitTask)] == ["careful"]


# -- one thing under several names -----------------------------------------------------------------------------------------

SECRETS = {"tool": "write_file", "path": "$.path", "pattern": "^secrets/"}
INTERNAL = {"tool": "fetch_url", "path": "$.url", "pattern": r"^https://internal\.example\.com/admin"}


@pytest.mark.parametrize(
    "path",
    [
        "secrets/a",
        "./secrets/a",
        "secrets//a",
        "a/../secrets/a",
        "a/./b/../../secrets/a",
        "/workspace/secrets/a",
        "/workspace/./a/..//secrets/a",
        "//workspace/secrets/a",
        "/app/secrets/a",
        "/app/../app/secrets/a",
    ],
)
def test_a_rule_about_a_file_holds_however_its_path_is_written(path: str) -> None:
    action = Action(tool="write_file", arguments={"path": path, "content": ""})
    submit = SubmitTask.model_validate({"instruction": "x", "environment": {"links": {"/app": "/workspace"}}})
    played = play(submit=submit, approvals=[SECRETS]).start().propose("write_file", path=path, content="")
    assert played.task.phase == "awaiting_approval"
    assert isinstance(rule(action, rules(approvals=[SECRETS]), 0, {"/app": "/workspace"}), NeedsApproval)


@pytest.mark.parametrize("path", ["secret/a", "a/secrets/b", "secrets", "/tmp/secrets/a", "no secrets/a"])
def test_a_rule_about_a_file_is_about_no_other(path: str) -> None:
    action = Action(tool="write_file", arguments={"path": path, "content": "secrets/"})
    assert rule(action, rules(approvals=[SECRETS]), 0, {"/app": "/workspace"}) == Allowed()


@pytest.mark.parametrize(
    "url",
    [
        "https://internal.example.com/admin",
        "HTTPS://Internal.Example.COM/admin",
        "https://internal.example.com:443/admin",
        "https://internal.example.com./admin",
        "https://internal.example.com/%61dmin",
        "https://internal.example.com/a/../admin",
        "https://internal.example.com//admin",
        "https://internal.example.com/./admin?a=b#c",
    ],
)
def test_a_rule_about_an_address_holds_however_it_is_written(url: str) -> None:
    action = Action(tool="fetch_url", arguments={"url": url})
    assert isinstance(rule(action, rules(approvals=[INTERNAL]), 0), NeedsApproval)


@pytest.mark.parametrize(
    "text",
    ["https://[::1", "https://h:99999/", "http:///", "a" * 5000 + "/..", "/", ".", "..", "/..", "\x00/"],
)
def test_odd_paths_and_addresses_break_nothing(text: str) -> None:
    action = Action.model_construct(tool="write_file", arguments={"path": text, "content": ""})
    assert rule(action, rules(approvals=[SECRETS, {**SECRETS, "pattern": "zzz"}]), 0) == Allowed()


@pytest.mark.parametrize(
    ("pattern", "approval", "redaction"),
    [
        ("(?:x{0,1000}|x{0,999}|x{0,998})y", True, False),
        (".".join([r"[A-Za-z0-9_-]{10,1000}"] * 3).replace(".", r"\."), True, False),  # a JSON Web Token
        (r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]{1,1000}", True, False),
        ("|".join(r"[A-Za-z0-9_-]{10,1000}" + sign for sign in "!?%&/()"), True, True),
    ],
)
def test_a_pattern_that_would_cost_much_is_refused_where_it_is_set(
    pattern: str, approval: bool, redaction: bool
) -> None:
    approvals = rules(approvals=[{"tool": "shell", "path": "$.command", "pattern": pattern}])
    redactions = rules(redactions=[{"pattern": pattern}])
    for wanted, refused in ((approvals, approval), (redactions, redaction)):
        assert ["is too large: RE2 makes" in fault for fault in too_large(wanted)] == [True] * refused
        assert list(faults(wanted, TOOLS)) == [], "rules that are in force stay in force"
