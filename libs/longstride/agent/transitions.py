"""The planner's mind: plan → execute → reflect, one function a message. No I/O: a ``Decision`` says what to do.

A step is ``think`` (ask the policy), ``act`` (carry its action out) and ``reflect`` (read the result, decide how to go on).
"""

from collections.abc import Callable, Mapping
from typing import Any

from longstride.agent import events as e
from longstride.agent.allowance import allowance, bounded, bounded_egress
from longstride.agent.breaker import tripped
from longstride.agent.budget import Exhausted, exhausted, overspent
from longstride.agent.compaction import keep_room
from longstride.agent.decision import Abandon, CountCall, Decision, Dispatch, Reply, Send, SetDeadline, Settle
from longstride.agent.delegation import delegate, release_ready, report, stop_subtasks
from longstride.agent.message_room import fits, fitted
from longstride.agent.redaction import redact
from longstride.agent.reflect import reflect
from longstride.agent.stuck import verdict
from longstride.agent.task import Task
from longstride.agent.tool_rules import Denied, NeedsApproval, offered, rate_limit, rule
from longstride.contracts.v1 import commands as c
from longstride.contracts.v1 import events as v
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.limits import SandboxLimits
from longstride.learning.reward import reward_of

SHOWN = 8192
"""Bytes of an observation that an agent sees, at the most."""

TOO_LONG = (
    "not carried out: the call does not fit into a message of 64 KiB, beside the task's own files, checks and variables. "
    "Make it shorter: write long files in parts"
)


def start(decision: Decision) -> None:
    """The task was admitted."""
    decision.record(e.Started(at=decision.now))
    decision.effect(SetDeadline(decision.task.submit.limits.wall_clock_s))
    think(decision)


def think(decision: Decision) -> None:
    """Plan: ask the policy for the next action, if anything is left to spend and nobody wants the task parked."""
    if spent := exhausted(decision.task, decision.now):
        return fail(decision, spent)
    if decision.task.pausing:
        return park(decision)
    if decision.task.messages:
        decision.record(e.MessagesShown(at=decision.now))
    keep_room(decision)
    decision.record(e.StepStarted(at=decision.now, step=decision.task.step + 1))
    decision.effect(Dispatch("generate", _generate(decision)))
    return None


def _generate(decision: Decision) -> c.Generate:
    task, submit = decision.task, decision.task.submit
    left = submit.limits.wall_clock_s - task.running_s(decision.now)
    return c.Generate(
        step=task.step,
        policy=submit.policy,
        track=submit.track,
        context=task.context.head(),
        tools=offered(submit.tools, task.rules),
        sampling=submit.sampling,
        timeout_s=max(1.0, min(submit.limits.model_timeout_s, left)),
    )


def on_generated(decision: Decision, message: v.Generated) -> None:
    """The policy answered: act on it, or tell it what was wrong with its answer."""
    if (decision.task.phase, decision.task.step) != ("thinking", message.step):
        return None
    decision.effect(Settle("generate", message.step))
    if message.error:
        return give_up(decision, "policy_unavailable", message.error)
    decision.record(_proposed(decision, message))
    if spent := overspent(decision.task, decision.now):
        return fail(decision, spent)
    if tripped(decision.task.call_tokens):
        return end(decision, "failed", "stuck", "token spike: model calls write far more than the task's others did")
    if message.action is None:
        return think(decision)
    return consider(decision, message.action)


def _proposed(decision: Decision, message: v.Generated) -> e.ActionProposed:
    same = {"step", "text", "action", "format_error", "tokens", "usage", "policy", "policy_version", "context_window"}
    return e.ActionProposed(at=decision.now, **{name: getattr(message, name) for name in same})


def consider(decision: Decision, action: Action) -> None:
    """Whether the action may be carried out now, is against the rules, must wait for a person, or is the planner's own."""
    task = decision.task
    if task.pausing:
        return park(decision)
    limit = rate_limit(action.tool, task.rules)
    calls = decision.recent_calls(action.tool) if limit else 0
    ruling = rule(action, task.rules, calls, task.submit.environment.links)
    if isinstance(ruling, Denied):
        return answer(decision, Observation(status="denied", text=ruling.reason))
    own = OWN.get(action.tool) if action.tool in (task.submit.tools or OWN) else None
    question = ruling.question if isinstance(ruling, NeedsApproval) else None
    if question is None and own is None and task.submit.approvals == "always":
        question = f"every action of this task needs approval: {action.tool}"
    if question and not task.approved:
        return ask(decision, question)
    if limit:
        decision.effect(CountCall(action.tool))
    return (own or act)(decision, action)


def ask(decision: Decision, why: str) -> None:
    """Park the task until a person decides."""
    decision.record(e.ApprovalRequested(at=decision.now, step=decision.task.step, why=why))
    decision.effect(SetDeadline(None))


def act(decision: Decision, action: Action) -> None:
    """Execute: send the action to a sandbox, with the workspace of the last committed step."""
    task, submit = decision.task, decision.task.submit
    left = allowance(submit.limits, task.tools_spent)
    command = c.ExecuteAction(
        step=task.step,
        action=action,
        tools=offered(submit.tools, task.rules),
        workspace=task.workspace,
        inputs=submit.inputs if _fresh(decision) else (),
        limits=call_limits(task),
        allowance=left,
        isolation=submit.isolation,
        secrets=submit.secrets,
        environment=submit.environment,
        egress=bounded_egress(submit.egress, left),
        checks=submit.checks if action.tool == "submit" else (),
        approvals=submit.approvals,
        approved=task.approved,
        redactions=task.rules.redactions,
    )
    if not fits(command):
        return answer(decision, Observation(status="invalid", text=TOO_LONG))
    return decision.effect(Dispatch("execute", command))


def call_limits(task: Task) -> SandboxLimits:
    """What the next tool call of a task may use."""
    own, limits = task.submit.sandbox, task.submit.limits
    own = own.model_copy(update={"wall_s": min(own.wall_s, limits.step_timeout_s)})
    return bounded(own, allowance(limits, task.tools_spent))


def _fresh(decision: Decision) -> bool:
    return decision.task.workspace == decision.task.submit.workspace


def on_executed(decision: Decision, message: v.ActionExecuted) -> None:
    """Reflect: read the result; done, stuck, or on to the next step."""
    task = decision.task
    if (task.phase, task.step) != ("acting", message.step):
        return None
    decision.effect(Settle("execute", message.step))
    if message.input_error:
        return end(decision, "failed", "input_unusable", message.input_error)
    if message.needs_review:
        return ask(decision, message.review or "an unsafe tool was interrupted; its effect is unknown. Run it again?")
    if message.error or message.observation is None:
        return give_up(decision, "infrastructure", message.error or "the tool-executor answered without an observation")
    observe(decision, message.observation, message)
    if task.action and task.action.tool == "submit" and message.observation.status == "ok":
        return judge(decision, message)
    return go_on(decision)


def observe(decision: Decision, observation: Observation, message: v.ActionExecuted) -> None:
    """Record what came back, with what the planner reads in it."""
    action = decision.task.action
    assert action is not None, "an observation follows an action"
    decision.record(
        e.ActionObserved(
            at=decision.now,
            step=message.step,
            observation=observation,
            reflection=reflect(action, observation, message.checks),
            workspace=message.workspace,
            checks=message.checks,
            artifacts=message.artifacts,
            usage=message.usage,
            traffic=message.traffic,
        )
    )


def judge(decision: Decision, message: v.ActionExecuted) -> None:
    """The agent handed in: the checks decide."""
    if broken := [check for check in message.checks if check.error]:
        return end(decision, "failed", "check_cannot_run", "; ".join(f"{b.name}: {b.error}" for b in broken))
    if not message.checks:
        return end(decision, "succeeded", "submitted")
    if all(check.passed for check in message.checks):
        return end(decision, "succeeded", "checks_passed")
    return go_on(decision)


def go_on(decision: Decision) -> None:
    """The next step, unless the agent goes in circles."""
    stuck = verdict(decision.task.turns, decision.task.nudges)
    if stuck and stuck.stop:
        return end(decision, "failed", "stuck", stuck.text)
    if stuck:
        decision.record(e.Nudged(at=decision.now, rule=stuck.rule, text=stuck.text))
    return think(decision)


def recall(decision: Decision, action: Action) -> None:
    """Give the agent the observation of an earlier step that is no longer in its context."""
    step = action.arguments.get("step")
    text = decision.history(step) if isinstance(step, int) and not isinstance(step, bool) else None
    missing = f"no step {step!r} with an observation; give step as a number from 1 to {decision.task.step - 1}"
    answer(decision, Observation(status="ok", text=text) if text else Observation(status="invalid", text=missing))


def answer(decision: Decision, observation: Observation) -> None:
    """Answer an action from within the planner. What an executor answers was redacted there, before it was stored."""
    text = redact(observation.text, decision.task.rules.redactions, most=SHOWN)
    observation = observation.model_copy(update={"text": text})
    observe(decision, observation, v.ActionExecuted(step=decision.task.step))
    go_on(decision)


def start_subtasks(decision: Decision, action: Action) -> None:
    """Hand parts of the task to other agents, or say why not."""
    refusal = delegate(decision, action)
    if refusal:
        answer(decision, Observation(status="invalid", text=refusal))


def on_subtask_ended(decision: Decision, message: v.TaskEnded, task_id: str) -> None:
    """A part is done: start those that waited for it; when all are done, go on with their answers."""
    part = next((p for p in decision.task.subtasks if p.spec.task_id == task_id), None)
    if part is None or part.ended or decision.task.ended:
        return None
    decision.record(
        e.SubtaskEnded(
            at=decision.now,
            task_id=task_id,
            outcome=message.outcome,
            reason=message.reason,
            answer=message.answer,
            usage=message.usage,
            tool_usage=message.tool_usage,
        )
    )
    if spent := overspent(decision.task, decision.now):
        return fail(decision, spent)
    release_ready(decision)
    if all(p.ended for p in decision.task.subtasks):
        answer(decision, report(decision.task))
    return None


def on_cancel(decision: Decision, message: c.CancelTask) -> None:
    """End at once; whatever is in flight loses its lease."""
    if not decision.task.ended:
        named = message.by if message.by != c.UNKNOWN else None
        told = f"cancelled by {named}: {message.reason}" if named else message.reason
        end(decision, "cancelled", "cancelled", told, by=message.by)


def on_pause(decision: Decision, message: c.PauseTask) -> None:
    """Park now if nothing is in flight, else after the call in flight."""
    task = decision.task
    if task.pausing or task.phase in ("paused", "ended") or _too_late(decision):
        return
    decision.record(e.PauseRequested(at=decision.now, sent=decision.sent or decision.now, by=message.by))


def park(decision: Decision) -> None:
    """Hold nothing: no worker, no sandbox, no clock."""
    decision.record(e.Parked(at=decision.now))
    decision.effect(SetDeadline(None))


def on_resume(decision: Decision, message: c.ResumeTask) -> None:
    """Go on where the task was parked, or take a pause back that has not happened yet."""
    task = decision.task
    if task.ended or _too_late(decision):
        return
    decision.record(e.Resumed(at=decision.now, sent=decision.sent or decision.now, by=message.by))
    if task.phase == "paused":
        wake(decision)


def _too_late(decision: Decision) -> bool:
    """A pause and a resume may overtake each other on the way; the one that was sent last counts."""
    sent, steered = decision.sent, decision.task.steered
    return sent is not None and steered is not None and sent < steered


def wake(decision: Decision) -> None:
    """Leave the parking place: the clock runs, and the action that waited is considered first."""
    task = decision.task
    decision.effect(SetDeadline(max(0.0, task.submit.limits.wall_clock_s - task.running_s(decision.now))))
    if task.action:
        consider(decision, task.action)
    else:
        think(decision)


def on_message(decision: Decision, message: c.MessageTask) -> None:
    """Keep it, in order, for the next model call. A model call in flight is not disturbed."""
    if not decision.task.ended:
        sent = decision.sent or decision.now
        decision.record(e.MessageReceived(at=decision.now, text=message.text, sent=sent, by=message.by))


def on_approval(decision: Decision, message: c.ApproveAction) -> None:
    """A person decided about the action that waits."""
    task = decision.task
    if (task.phase, task.step) != ("awaiting_approval", message.step) or task.action is None:
        return None
    decision.record(e.ApprovalDecided(at=decision.now, **message.model_dump()))
    decision.effect(SetDeadline(max(0.0, task.submit.limits.wall_clock_s - task.running_s(decision.now))))
    if message.approved:
        return consider(decision, task.action)
    why = f" Reason: {message.reason}" if message.reason else ""
    return answer(decision, Observation(status="denied", text=f"{message.by} did not approve this action.{why}"))


def on_expired(decision: Decision, message: c.ExpireTask) -> None:
    """The timer rang: stop the task if its clock has really run out, else set the timer anew."""
    task = decision.task
    if task.ended or task.clock_started is None:
        return None
    left = task.submit.limits.wall_clock_s - task.running_s(decision.now)
    if left > 0:
        return decision.effect(SetDeadline(left))
    spent = exhausted(task, decision.now)
    assert spent is not None, "no time is left"
    return fail(decision, spent)


def fail(decision: Decision, spent: Exhausted) -> None:
    """End for want of budget."""
    end(decision, "failed", spent.reason, spent.detail)


def give_up(decision: Decision, reason: v.EndReason, why: str) -> None:
    """End because a call came to nothing; when the budget ran out over it, that is the limit that was hit."""
    if spent := overspent(decision.task, decision.now):
        return fail(decision, spent._replace(detail=f"{spent.detail}; the call in flight came to nothing: {why}"))
    return end(decision, "failed", reason, why)


def end(decision: Decision, outcome: v.Outcome, reason: v.EndReason, detail: str = "", by: str | None = None) -> None:
    """The one terminal state: nothing is left in flight, and everybody who waits is told."""
    stop_subtasks(decision)
    reward = reward_of(decision.task.submit.checks, decision.task.checks, reason).value
    decision.record(
        e.Ended(at=decision.now, outcome=outcome, reason=reason, detail=detail[:8000], reward=reward, by=by)
    )
    ended = task_ended(decision.task)
    decision.effect(Abandon(), SetDeadline(None), Send(ended, decision.task.id), Reply(ended))


def task_ended(task: Task) -> v.TaskEnded:
    """What the world is told of a task that has ended."""
    assert task.outcome is not None
    assert task.reason is not None
    told = v.TaskEnded(
        outcome=task.outcome,
        reason=task.reason,
        detail=task.detail,
        answer=task.answer,
        steps=task.step,
        usage=task.spent,
        tool_usage=task.tools_spent,
        checks=task.checks,
        reward=task.reward,
        artifacts=task.artifacts,
        last_seq=task.seq,
    )
    return fitted(told)


OWN: Mapping[str, Callable[[Decision, Action], None]] = {"delegate": start_subtasks, "recall": recall}
"""Tools that the planner answers itself."""

TRANSITIONS: Mapping[type, Callable[[Decision, Any], None]] = {
    v.Generated: on_generated,
    v.ActionExecuted: on_executed,
    c.CancelTask: on_cancel,
    c.PauseTask: on_pause,
    c.ResumeTask: on_resume,
    c.MessageTask: on_message,
    c.ApproveAction: on_approval,
    c.ExpireTask: on_expired,
}
"""Messages about a task that exists. ``submit_task`` makes one (``admission.py``); ``task_ended`` goes to the parent."""
