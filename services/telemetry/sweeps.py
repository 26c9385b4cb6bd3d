"""When the sweeps are due: a schedule in PostgreSQL, one for all processes. The trainer's job process carries them out."""

from longstride.contracts.envelope import seal
from longstride.contracts.v1.commands import Sweep
from longstride.messaging.timers import set_schedule
from longstride.storage.database import Database
from services.telemetry.settings import RecorderSettings

KEY = "sweep"
EVERY_S = 3600.0


def schedule_sweeps(database: Database, settings: RecorderSettings) -> None:
    """Have them made, by these settings from now on."""
    sweep = Sweep(orphans_after_s=settings.orphans_after_h * 3600, keep_spans_s=settings.keep_spans_days * 86_400)
    with database.begin() as uow:
        set_schedule(uow, KEY, seal(sweep), EVERY_S)
