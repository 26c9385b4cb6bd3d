"""The planner's composition root: ``python -m services.planner.main``."""

import sys
from collections.abc import Sequence

from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.handling import check_handlers
from longstride.messaging.part import Part
from longstride.observability.middleware import handler_spans
from services.host import Host, Serving, run
from services.planner.handlers import Planner, foresee, handlers
from services.planner.settings import PlannerSettings


def parts(host: Host) -> Sequence[Part]:
    """What a planner runs."""
    settings = PlannerSettings()
    backbone = host.backbone
    steps = host.telemetry.settings.trace_segment_steps
    tools = host.tools.names
    planner = Planner(host.artifacts, backbone.outbox, tools=tools, capacity=settings.capacity, segment_steps=steps)
    table = handlers(planner)
    check_handlers("planner", table)
    spans = handler_spans(host.telemetry, "planner")
    dispatcher = Dispatcher("planner", table, backbone.database, backbone.outbox, middleware=[spans], foresee=foresee)
    return host.watched(Serving(backbone.bus, "longstride.planner", dispatcher, slots=settings.slots))


if __name__ == "__main__":
    sys.exit(run("planner", parts))
