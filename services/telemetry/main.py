"""Telemetry's composition root: ``python -m services.telemetry.main``."""

import sys
from collections.abc import Sequence

from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.handling import check_handlers
from longstride.messaging.part import Part
from longstride.observability.middleware import handler_spans
from services.host import Host, Serving, run
from services.telemetry.handlers import Recorder, handlers
from services.telemetry.settings import RecorderSettings
from services.telemetry.sweeps import schedule_sweeps
from services.telemetry.vitals import Vitals


def parts(host: Host) -> Sequence[Part]:
    """What telemetry runs."""
    settings = RecorderSettings()
    backbone = host.backbone
    table = handlers(Recorder(host.artifacts, backbone.outbox, update_groups=settings.update_groups))
    check_handlers("telemetry", table)
    spans = handler_spans(host.telemetry, "telemetry")
    dispatcher = Dispatcher("telemetry", table, backbone.database, backbone.outbox, middleware=[spans])
    host.patiently(lambda: schedule_sweeps(backbone.database, settings), "PostgreSQL")
    return [
        *host.watched(Serving(backbone.bus, "longstride.telemetry", dispatcher, slots=settings.slots)),
        Vitals(backbone.database, host.telemetry.metrics),
    ]


if __name__ == "__main__":
    sys.exit(run("telemetry", parts))
