"""Everything about one tool for people and programs, out of the tool itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longstride.contracts.v1.action import Action, IdempotencyClass
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.limits import Limits, SandboxLimits
from longstride.tools.argument import Argument, arguments
from longstride.tools.household import Bounds
from longstride.tools.registry import AnyTool, Registry
from longstride.tools.sample import sample

EFFECTS: Mapping[IdempotencyClass, str] = {
    "pure": "no effect outside the workspace: an interrupted call is made again",
    "keyed": "idempotent: a call that is made again changes nothing more",
    "unsafe": "a person decides whether an interrupted call is made again",
}
REACHES_OUT = "in a task that may reach hosts, as unsafe: nothing brings back what was sent"
ANYWHERE = Egress(rules=(EgressRule(host="example.com"),))
LIMITS = ("cpu_s", "memory_mb", "processes", "disk_mb", "output_mb")
"""Of a call's sandbox; named as observations name them."""


@dataclass(frozen=True, slots=True)
class Card:
    """A tool as ``longstride tools`` shows it."""

    name: str
    description: str
    offered: bool
    """Whether a task that names no tools gets it."""
    effects: IdempotencyClass
    after_an_interruption: str
    """What the effects mean where a call was interrupted."""
    runs: str
    """Where, and what this takes."""
    network: str
    secrets: tuple[str, ...]
    limits: Mapping[str, float]
    """Of one call, where the task and the executor say nothing else."""
    arguments: tuple[Argument, ...]
    example: Mapping[str, Any]
    """An action, as a policy writes it."""
    parameters: Mapping[str, Any]
    """The JSON Schema of its arguments."""


def card(registry: Registry, name: str) -> Card:
    """Of a tool that the registry has."""
    tool = registry.get(name)
    assert tool is not None, "asked for by its own name"
    spec = tool.spec
    return Card(
        name=name,
        description=spec.description,
        offered=tool.offered,
        effects=tool.idempotency,
        after_an_interruption=_interrupted(registry, tool),
        runs=_place(tool),
        network="none" if tool.planner_side else tool.network,
        secrets=tool.secrets,
        limits=_limits(tool),
        arguments=tuple(arguments(spec.parameters)),
        example={"tool": name, "arguments": dict(sample(spec.parameters) if tool.example is None else tool.example)},
        parameters=spec.parameters,
    )


def _interrupted(registry: Registry, tool: AnyTool) -> str:
    """As the registry judges a call, with a way out and without."""
    told = EFFECTS[tool.idempotency]
    if tool.planner_side or tool.idempotency == "unsafe":
        return told
    call = ExecuteAction(
        step=1,
        action=Action(tool=tool.name),
        tools=(tool.name,),
        limits=SandboxLimits(),
        isolation="process",
        egress=ANYWHERE,
    )
    return f"{told}; {REACHES_OUT}" if registry.unsafe(call) else told


def _place(tool: AnyTool) -> str:
    if tool.planner_side:
        return "in the planner, without a sandbox"
    place = "in a sandbox of the task's isolation (process, gvisor or microvm)"
    bounds = Bounds()
    kept = (
        f"; the executor keeps processes between calls, {bounds.of_a_task} of a task, each for {bounds.wall_s:g} s and"
        f" {bounds.cpu_s:g} s of CPU: not where it cannot pause them (no control groups, kubernetes)"
    )
    return place + kept if tool.kept else place


def _limits(tool: AnyTool) -> dict[str, float]:
    """``step_timeout_s`` is the task's own limit of a call."""
    if tool.planner_side:
        return {}
    limits = SandboxLimits()
    return {
        "wall_s": min(tool.time_limit_s, Limits().step_timeout_s),
        **{name: getattr(limits, name) for name in LIMITS},
    }
