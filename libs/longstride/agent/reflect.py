"""Reflection: what an error says, put so that the next step can use it."""

import re

from longstride.contracts.v1.action import Action, CheckResult, Observation

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
RAISED = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))(?::\s*(?P<text>.*))?$", re.MULTILINE
)


def reflect(action: Action, observation: Observation, checks: tuple[CheckResult, ...]) -> str | None:
    """A line or two about a failure, or ``None`` when nothing failed."""
    if any(not check.passed for check in checks):
        return _of_checks(checks)
    if observation.status == "ok":
        return None
    return _of_traceback(observation.text) or HINTS.get(observation.status, "The {tool} call failed.").format(
        tool=action.tool, limit=observation.limit or "a limit"
    )


def _of_checks(checks: tuple[CheckResult, ...]) -> str:
    failed = [f"- {check.name}: {check.detail or 'failed'}" for check in checks if not check.passed]
    passed = sum(check.passed for check in checks)
    return "\n".join([f"{passed} of {len(checks)} checks passed. The task is not done:", *failed])


def _of_traceback(text: str) -> str | None:
    raised = list(RAISED.finditer(text))
    if "Traceback (most recent call last)" not in text or not raised:
        return None
    frames = list(FRAME.finditer(text))
    where = f" at {frames[-1]['file']}:{frames[-1]['line']}" if frames else ""
    return f"It raised {raised[-1]['type']}{where}. Mend that before going on."


HINTS = {
    "failed": "The {tool} call failed. Read its output before the next step.",
    "timeout": "The {tool} call was stopped by its time limit. Do less at once.",
    "limit": "The {tool} call was stopped by {limit}. Use less of it.",
    "denied": "The {tool} call was not allowed. Find another way.",
    "invalid": "The {tool} call was not carried out. Correct it.",
}
