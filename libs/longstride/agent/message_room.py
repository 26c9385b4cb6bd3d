"""Messages have 64 KiB. What an agent or a task's author made long must not keep a task from going on: it is told of, or cut in the
order that loses the least. All of it is in the task's events."""

import json
from collections.abc import Callable, Sequence

from longstride.contracts.envelope import MAX_BYTES
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import CheckResult
from longstride.contracts.v1.events import TaskEnded

MOST_BYTES = MAX_BYTES - 4096
"""Of a message's body; the envelope takes the rest."""
OF_CHECKS, OF_ARTIFACTS = 20 * 1024, 24 * 1024
"""Of an action's result: its checks, and the files that it hands in."""
OF_ANSWER = 4096


def size(message: Contract) -> int:
    """Bytes of a message's body."""
    return len(message.model_dump_json(exclude_none=True).encode())


def fits(message: Contract) -> bool:
    """Whether an envelope holds it."""
    return size(message) <= MOST_BYTES


def fitting(text: str, room: int) -> str:
    """As much of a text as has so many bytes in JSON, where a control character is six of them."""
    whole = text.encode()
    cuts = (whole[: max(0, most)].decode(errors="ignore") for most in (room, room // 6))
    return next((cut for cut in cuts if len(json.dumps(cut, ensure_ascii=False).encode()) <= room + 2), "")


def with_room(checks: Sequence[CheckResult], most: int = OF_CHECKS) -> tuple[CheckResult, ...]:
    """The checks' results, each with as much of its detail as there is room for."""
    bare = [check.model_copy(update={"detail": "", "error": check.error and ""}) for check in checks]
    share = max(0, most - sum(map(size, bare))) // max(1, len(checks))
    return tuple(_within(check, share) for check in checks)


def _within(check: CheckResult, room: int) -> CheckResult:
    """Why a check is broken comes first; its detail has what that leaves."""
    error = check.error and (fitting(check.error, room) or "broken")
    taken = len(json.dumps(error or "", ensure_ascii=False).encode()) - 2
    return check.model_copy(update={"error": error, "detail": fitting(check.detail, room - taken)})


def fitted(ended: TaskEnded) -> TaskEnded:
    """What the world is told of a task that has ended."""
    cuts: tuple[Callable[[TaskEnded], dict[str, object]], ...] = (
        lambda ended: {"checks": with_room(ended.checks)},
        lambda ended: {"checks": with_room(ended.checks, 0)},
        lambda ended: {"answer": ended.answer and fitting(ended.answer, OF_ANSWER)},
        lambda ended: {"detail": fitting(ended.detail, OF_ANSWER)},
        lambda ended: {"artifacts": ()},
    )
    for cut in cuts:
        if fits(ended):
            break
        ended = ended.model_copy(update=cut(ended))
    return ended
