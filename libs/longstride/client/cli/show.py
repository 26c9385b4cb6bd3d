"""``longstride show``: one task, with its steps, budget, artifacts and trace id."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from longstride.agent.allowance import TOOL_BUDGETS
from longstride.agent.number import plain
from longstride.agent.task import Task
from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import Deployment, connect
from longstride.client.errors import NotFound
from longstride.client.failures import translated
from longstride.client.outbox_client import trace_id
from longstride.client.screen import units
from longstride.client.screen.console import out, say, show, show_json
from longstride.client.screen.safe import one_line, safe
from longstride.client.screen.step_lines import StepLines
from longstride.client.screen.symbols import symbols
from longstride.client.screen.verdict import verdict
from longstride.client.step_view import History, StepView, history
from longstride.storage.tasks import TaskHead

LABEL = 10
SHOWN_CONNECTIONS = 4
"""Of a step, beside all the others; ``--step`` lists more."""


def show_task(
    task: TaskId,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="This step alone, with all of what it wrote and saw.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a task: its steps, budget, artifacts and trace id.

    Examples:

      longstride show 3f9a12bc

      longstride show 3f9a12bc --step 2

      longstride show 3f9a12bc --json | jq '.steps[].status'
    """
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        happened = [event for _, event in deployment.reader.events(head.id)]
        past, state = history(happened), deployment.reader.state(head)
        if step is not None:
            _show_step(deployment, _step(past, head, step), json)
        elif json:
            show_json(document(deployment, head, state, past))
        else:
            show(*_page(deployment, head, state, past))


def _step(past: History, head: TaskHead, number: int) -> StepView:
    if number not in past.steps:
        raise NotFound(f"{units.short(head.id)} has no step {number}; it has {len(past.steps)}")
    return past.steps[number]


def _show_step(deployment: Deployment, step: StepView, json: bool) -> None:
    whole = whole_observation(deployment, step)
    if json:
        return show_json({**step_document(step), "observation_full": whole})
    lines = _lines()
    show(*lines.proposed(step), *(lines.observed(step) if step.observation else ()), *lines.network(step))
    for name, text in (("written", step.text), ("observed", whole or ""), ("reflection", step.reflection or "")):
        if text:
            show(Text(f"\n{name}", "faint"), text)
    return None


def whole_observation(deployment: Deployment, step: StepView) -> str | None:
    """All of what a tool printed, from the artifact store where the event holds but its ends."""
    seen = step.observation
    if seen is None or seen.full is None or deployment.artifacts is None:
        return seen.text if seen else None
    with translated():
        return deployment.artifacts.get(seen.full).decode(errors="replace")


def _page(deployment: Deployment, head: TaskHead, state: Task, past: History) -> Iterator[Any]:
    found = verdict(head.status, head.reason)
    more = "" if found.unchecked else f"  {head.reason or state.phase}"
    yield Text.assemble((head.id, "name"), "  ", (found.text, f"{found.style} bold".strip()), (more, "faint"))
    yield Text(safe(state.submit.instruction), "strong")
    yield Text()
    lines = _lines()
    for step in past.steps.values():
        yield from lines.proposed(step)
        yield from lines.waiting(step) if step.status == "waiting" else ()
        yield from lines.delegated(step)
        yield from lines.observed(step) if step.observation else ()
        yield from lines.network(step, SHOWN_CONNECTIONS)
        if step.nudge:
            yield lines.note("nudge", step.nudge, "mend")
    if past.ended:
        yield from lines.ended(past.ended, state.answer)
    yield Text()
    for name, told in _facts(deployment, head, state):
        yield Text.assemble((f"{name:<{LABEL}} ", "faint"), one_line(told))


def _facts(deployment: Deployment, head: TaskHead, state: Task) -> Iterator[tuple[str, str]]:
    limits, spent = state.submit.limits, state.spent
    cost = f", ${spent.cost_usd:.4f}" + (f" of ${limits.cost_usd:g}" if limits.cost_usd else "")
    yield "budget", f"{state.step} of {limits.steps} steps, {spent.tokens:,} of {limits.tokens:,} tokens{cost}"
    yield "time", f"{units.seconds(running_s(state))} of {units.seconds(limits.wall_clock_s)} running"
    yield "tools", ", ".join(_tool_budgets(state))
    policy = head.policy or "the default of its track"
    yield "policy", f"{policy}, {head.track} track, priority {head.priority}, tenant {head.tenant}"
    if found := deployment.reader.hindrance(head.id):
        yield "waits", f"{found.reason} (last tried {units.ago(found.at)} ago)"
    if state.answer:
        yield "answer", state.answer if state.outcome == "succeeded" else f"{state.answer}   (not accepted)"
    yield "session", head.session_id
    if head.parent_task_id:
        yield "part of", head.parent_task_id
    for check in state.checks:
        yield "check", f"{check.name}: {'passed' if check.passed else check.error or check.detail or 'failed'}"
    for artifact in state.artifacts:
        yield "artifact", f"{artifact.name}  {units.size(artifact.ref.size)}  {deployment.where(artifact.ref.key)}"
    yield "trace", f"{trace_id(head) or 'none'}   (longstride trace {units.short(head.id)})"


def _tool_budgets(state: Task) -> Iterator[str]:
    """What its tool calls have used; of the network where they could, or a budget says how much."""
    for budget in TOOL_BUDGETS:
        used, most = budget.of(state.tools_spent), budget.most(state.submit.limits)
        if used or most or budget.reason != "network_exhausted":
            yield _amount(used) + (f" of {plain(most)}" if most else "") + f" {budget.what}"


def _amount(used: float) -> str:
    """To people, a hundredth is as good as any fraction of it."""
    return "under 0.01" if 0 < used < 0.01 else plain(round(used, 2), 3)


def running_s(state: Task) -> float:
    """Seconds of its wall-clock budget that a task has used."""
    return state.running_s(datetime.now(UTC))


def _lines() -> StepLines:
    return StepLines(min(out().width, 160), symbols(out().encoding))


def document(deployment: Deployment, head: TaskHead, state: Task, past: History) -> dict[str, Any]:
    """Everything of the page, for programs."""
    limits = state.submit.limits
    return {
        "task": asdict(head),
        "phase": state.phase,
        "submit": state.submit.model_dump(mode="json"),
        "detail": state.detail,
        "plan": list(state.plan),
        "steps": [step_document(step) for step in past.steps.values()],
        "checks": [check.model_dump(mode="json") for check in state.checks],
        "budget": {
            "steps": {"used": state.step, "limit": limits.steps},
            "tokens": {"used": state.spent.tokens, "limit": limits.tokens},
            "cost_usd": {"used": state.spent.cost_usd, "limit": limits.cost_usd},
            "wall_clock_s": {"used": round(running_s(state), 3), "limit": limits.wall_clock_s},
            **{
                budget.name: {"used": round(budget.of(state.tools_spent), 6), "limit": budget.most(limits)}
                for budget in TOOL_BUDGETS
            },
        },
        "artifacts": [
            {"name": a.name, **a.ref.model_dump(mode="json"), "where": deployment.where(a.ref.key)}
            for a in state.artifacts
        ],
        "waits": (found := deployment.reader.hindrance(head.id)) and asdict(found),
        "trace_id": trace_id(head),
    }


def step_document(step: StepView) -> dict[str, Any]:
    """One step, for programs."""
    return {
        "step": step.number,
        "status": step.status,
        "corrects": step.corrects,
        "plan": list(step.new_plan) if step.new_plan is not None else None,
        "text": step.text,
        "action": step.action and step.action.model_dump(mode="json"),
        "format_error": step.format_error,
        "policy": step.policy,
        "policy_version": step.policy_version,
        "question": step.question,
        "decision": step.decision,
        "observation": step.observation and step.observation.model_dump(mode="json"),
        "reflection": step.reflection,
        "traffic": step.traffic and step.traffic.model_dump(mode="json"),
        "checks": [check.model_dump(mode="json") for check in step.checks],
        "tokens": step.model_usage.tokens,
        "model_s": step.model_s,
        "tool_s": step.tool_s,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
    }
