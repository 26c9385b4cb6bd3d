"""The planner's composition root: ``python -m services.planner.main``."""

import sys
from collections.abc import Sequence

from longstride.messaging.commands import Commands, QueuedCommands
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.handling import check_handlers
from longstride.messaging.part import Part
from longstride.observability.middleware import handler_spans
from services.host import Host, Serving, run
from services.planner.handlers import Planner, foresee, handlers
from services.planner.settings import PlannerSettings


def make(host: Host, commands: Commands) -> Dispatcher:
    """What takes a planner's messages."""
    backbone = host.backbone
    planner = Planner(
        host.artifacts,
        backbone.outbox,
        commands,
        tools=host.tools.names,
        capacity=PlannerSettings().capacity,
        segment_steps=host.telemetry.settings.trace_segment_steps,
    )
    table = handlers(planner)
    check_handlers("planner", table)
    spans = handler_spans(host.telemetry, "planner")
    return Dispatcher(
        "planner",
        table,
        backbone.database,
        backbone.outbox,
        middleware=[spans],
        foresee=foresee,
        given_up=planner.part_given_up,
    )


def consuming(host: Host, dispatcher: Dispatcher) -> Sequence[Part]:
    """What brings them."""
    return host.watched(Serving(host.backbone.bus, "longstride.planner", dispatcher, slots=PlannerSettings().slots))


def parts(host: Host) -> Sequence[Part]:
    """What a planner runs."""
    return consuming(host, make(host, QueuedCommands(host.backbone.outbox)))


if __name__ == "__main__":
    sys.exit(run("planner", parts))
