"""Accepting a task: from a submission, or from another task's past."""

from datetime import datetime

from longstride.agent.decision import Decision, Reply, Store
from longstride.agent.events import Forked, Submitted
from longstride.agent.prompt import opening
from longstride.agent.task import Task
from longstride.contracts.artifact import ref_for
from longstride.contracts.v1.check import Check, CommandCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.events import TaskAccepted
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.tool_rules import RulesInForce

INLINE_BYTES = 1024
"""Longer inline files become objects, so that the commands which carry them stay small."""


def accept(
    task_id: str,
    session_id: str,
    tenant: str,
    submit: SubmitTask,
    now: datetime,
    source: Task | None = None,
    rules: RulesInForce | None = None,
) -> Decision:
    """A queued task.

    ``source`` is the state to fork from, folded up to the step that ``submit.fork_of`` names; ``rules`` are those of
    its tenant and agent definition, which hold for it to its end.
    """
    decision = Decision(Task(id=task_id, session_id=session_id, tenant=tenant, submit=submit), now)
    kept = submit.model_copy(
        update={
            "inputs": tuple(_outsourced(decision, file) for file in submit.inputs),
            "checks": tuple(_check(decision, check) for check in submit.checks),
        }
    )
    decision.record(Submitted(at=now, submit=kept, messages=opening(kept), rules=rules))
    if source is not None:
        decision.record(_forked(source, kept))
    decision.effect(Reply(TaskAccepted()))
    return decision


def _check(decision: Decision, check: Check) -> Check:
    if not isinstance(check, CommandCheck):
        return check
    return check.model_copy(update={"files": tuple(_outsourced(decision, file) for file in check.files)})


def _outsourced(decision: Decision, file: InputFile) -> InputFile:
    if file.text is None or len(file.text.encode()) <= INLINE_BYTES:
        return file
    data = file.text.encode()
    ref = ref_for(data, session=decision.task.session_id, kind="input", media_type="text/plain")
    decision.effect(Store(ref, data))
    return InputFile(path=file.path, ref=ref, executable=file.executable)


def _forked(source: Task, submit: SubmitTask) -> Forked:
    """The source's context and workspace; a new instruction is told to the agent as a message."""
    assert submit.fork_of is not None, "a fork names its source"
    told = (
        () if submit.instruction == source.submit.instruction else (Message(role="user", content=submit.instruction),)
    )
    return Forked(
        source=source.id,
        step=submit.fork_of[1],
        context_parent=source.context.parent,
        tail=(*source.context.tail, *told),
        messages=source.context.count + len(told),
        workspace=source.workspace,
        plan=source.plan,
    )
