"""A policy that follows a script: deterministic, for tests and benchmarks, and it can misbehave on request.

The script is JSON, either a list of lines said one after the other, or rules tried against the last message::

    {"version": 1,
     "lines": [{"tool": "shell", "arguments": {"command": "ls"}}, {"say": "not an action"}, {"tool": "submit", "arguments": {"answer": "42"}}],
     "then": "repeat"}

    {"version": 1,
     "rules": [{"when": "No such file", "do": {"tool": "search_files", "arguments": {"pattern": "a.csv"}}},
               {"when": "", "do": {"tool": "submit", "arguments": {"answer": "done"}}}]}

A line is an action, or one of ``{"say": TEXT}`` (written as it is: garbage), ``{"say": ""}`` (nothing), ``{"hang": SECONDS}``
(an empty answer after that long, or none within the time-out), ``{"raise": TEXT}`` (unavailable; ``"retryable": true`` if another
try may help), ``{"overflow": true}``. Which line is next follows from the conversation alone (the number of its last
step), so a call that is repeated after a crash gets the same answer. ``then`` says what follows the last line:
``repeat`` says it for ever, ``fail`` (the default) is unavailable. ``when`` is a regular expression searched in the last message
that is not the policy's; in a text that ``do`` gives, ``{1}`` is its first group.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from longstride.agent.action_format import render
from longstride.contracts.envelope import explain
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, ToolSpec, Usage
from longstride.contracts.v1.commands import Sampling
from longstride.policies.base import ContextOverflow, Generation, PolicyTimeout, PolicyUnavailable, Turn


class Say(Contract):
    """Write a text as it is."""

    say: str


class Hang(Contract):
    """Answer nothing for a while, then an empty text."""

    hang: Annotated[float, Field(ge=0)]
    """Seconds."""


class Raise(Contract):
    """Be unavailable."""

    reason: Annotated[str, Field(alias="raise")]
    retryable: bool = False


class Overflow(Contract):
    """Find the conversation too long."""

    overflow: Literal[True]


Line = Action | Say | Hang | Raise | Overflow


class Rule(Contract):
    """What to do when the last message matches."""

    when: str
    do: Line

    @model_validator(mode="after")
    def _compiles(self) -> "Rule":
        try:
            re.compile(self.when)
        except re.error as error:
            raise ValueError(f"when {self.when!r} is not a regular expression: {error}") from error
        return self


class Script(Contract):
    """What a scripted policy says."""

    version: Literal[1] = 1
    lines: tuple[Line, ...] = ()
    then: Literal["repeat", "fail"] = "fail"
    rules: tuple[Rule, ...] = ()
    context_window: Annotated[int, Field(gt=0)] = 1_000_000

    @model_validator(mode="after")
    def _one_kind(self) -> "Script":
        if bool(self.lines) == bool(self.rules):
            raise ValueError("a script has either lines or rules")
        return self

    @classmethod
    def read(cls, path: Path) -> "Script":
        """Read a script file.

        Raises:
            PolicyUnavailable: it is missing or no script; the text names the file and the field.
        """
        try:
            return cls.model_validate_json(path.read_text())
        except OSError as error:
            raise PolicyUnavailable(f"cannot read the script {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise PolicyUnavailable(f"{path} is not a script: it is not UTF-8 text (byte {error.start})") from error
        except ValidationError as error:
            raise PolicyUnavailable(f"{path} is not a script: {explain(error)}") from error


class ScriptedPolicy:
    """See the module's text."""

    version = None

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self.name = name
        self._script = script
        self.context_window = script.context_window

    def generate(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling, timeout_s: float
    ) -> Generation:
        """See ``Policy.generate``. Usage counts four characters a token."""
        text = self._perform(self._next(turns), timeout_s)
        read = sum(len(turn.message.content) for turn in turns)
        usage = Usage(input_tokens=read // 4, output_tokens=len(text) // 4)
        return Generation(text, self.name, None, usage=usage)

    def _next(self, turns: Sequence[Turn]) -> Line:
        if self._script.rules:
            return self._matching([t.message.content for t in turns if t.message.role != "assistant"][-1:])
        said = max((turn.message.step or 0 for turn in turns), default=0)
        if said >= len(self._script.lines) and self._script.then == "fail":
            raise PolicyUnavailable(f"{self.name} has no line {said + 1}: its script has {len(self._script.lines)}")
        return self._script.lines[min(said, len(self._script.lines) - 1)]

    def _matching(self, last: list[str]) -> Line:
        for rule in self._script.rules:
            for text in last:
                if found := re.search(rule.when, text):
                    return _filled(rule.do, found)
        raise PolicyUnavailable(f"{self.name} has no rule for the last message: {''.join(last)[:200]!r}")

    def _perform(self, line: Line, timeout_s: float) -> str:
        match line:
            case Say(say=text):
                return text
            case Hang(hang=seconds):
                time.sleep(min(seconds, timeout_s))
                if seconds >= timeout_s:
                    raise PolicyTimeout(f"{self.name} did not answer within {timeout_s:g} s", retryable=True)
                return ""
            case Raise(reason=reason, retryable=retryable):
                raise PolicyUnavailable(reason, retryable=retryable)
            case Overflow():
                raise ContextOverflow(f"{self.name} finds the conversation too long")
            case Action():
                return render(line)


def _filled(line: Line, found: re.Match[str]) -> Line:
    """With ``{1}`` … in an action's arguments replaced by the groups of the match."""
    if not isinstance(line, Action):
        return line
    return line.model_copy(update={"arguments": {key: _fill(value, found) for key, value in line.arguments.items()}})


def _fill(value: JsonValue, found: re.Match[str]) -> JsonValue:
    if isinstance(value, str):
        return re.sub(r"\{([1-9])\}", lambda mark: _group(found, int(mark[1]), mark[0]), value)
    if isinstance(value, list):
        return [_fill(item, found) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, found) for key, item in value.items()}
    return value


def _group(found: re.Match[str], number: int, mark: str) -> str:
    return (found[number] or "") if number <= len(found.groups()) else mark
