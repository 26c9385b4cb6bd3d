"""What every process has in common: the way to the database and to the broker, and what keeps promises in between."""

from collections.abc import Callable, Sequence

from longstride.contracts.ids import incarnation
from longstride.contracts.model import Contract
from longstride.contracts.topology import DEAD_LETTER_QUEUE
from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.dead_letters import DeadLetterDrain
from longstride.messaging.lease import HEARTBEAT_S, TTL_S, Leases
from longstride.messaging.outbox import Outbox
from longstride.messaging.outbox_hints import OutboxHints
from longstride.messaging.part import Part
from longstride.messaging.reaper import MAX_ATTEMPTS, Reaper
from longstride.messaging.relay import OutboxRelay
from longstride.messaging.timers import Timers
from longstride.storage.database import Database


class Backbone:
    """One incarnation's pools, bus, relay, outbox and leases. A forked child makes its own."""

    def __init__(
        self,
        service: str,
        database_url: str,
        amqp_url: str,
        *,
        relay_polls: bool = True,
        pool_size: int = 8,
        lease_ttl_s: float = TTL_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """Nothing is connected yet.

        Args:
            service: its name, for logs and the ``workers`` table.
            database_url: ``postgresql://…``
            amqp_url: ``amqp://…``, ``amqps://…`` or ``memory://name``.
            relay_polls: whether this process also sends what other processes left in the outbox.
            pool_size: database connections at the most; one for each slot and housekeeping thread is enough.
            lease_ttl_s: see ``Leases``.
            heartbeat_s: see ``Leases``.
        """
        self.service = service
        self.incarnation = incarnation()
        self.database_url = database_url
        name = f"longstride {service}"
        self.database = Database(
            database_url, pool_size=pool_size, max_overflow=2, notify_outbox=False, application_name=name
        )
        self.heartbeat_database = Database(
            database_url,
            pool_size=1,
            max_overflow=0,
            pool_timeout_s=3 * heartbeat_s,
            connect_timeout_s=2,
            statement_timeout_s=3 * heartbeat_s,
            notify_outbox=False,
            application_name=f"{name} heartbeat",
        )
        self.bus = Bus(amqp_url)
        self.relay = OutboxRelay(self.bus, self.database, polls=relay_polls)
        self.outbox = Outbox(self.relay)
        self.leases = Leases(
            self.database,
            self.heartbeat_database,
            self.outbox,
            self.incarnation,
            service,
            ttl_s=lease_ttl_s,
            heartbeat_s=heartbeat_s,
        )

    def succeed(self) -> int:
        """Take over from a process that is known to be dead, before anything is started: the embedded stack's last life.

        Its leases run out now rather than in ``lease_ttl_s``, and what it had not sent is due. Returns how many leases
        that were. Only for a process that is alone on its database.
        """
        with self.database.begin() as uow:
            uow.outbox.all_due()
            forfeited = 0
            for worker in uow.workers.all():
                forfeited += uow.attempts.forfeit(worker.incarnation)
                uow.workers.retire(worker.incarnation)
        return forfeited

    def essentials(self) -> list[Part]:
        """What a process cannot do without."""
        return [self.relay, self.leases]

    def housekeeping(
        self, unsafe: Callable[[Contract], bool], *, max_attempts: int = MAX_ATTEMPTS, reap_every_s: float = 1.0
    ) -> Sequence[Part]:
        """What every service runs for all of them; once in a process that hosts several.

        Args:
            unsafe: whether a command must not be run a second time; see ``Reaper``.
            max_attempts: see ``Reaper``.
            reap_every_s: see ``Reaper``.
        """
        dead_letters = DeadLetterDrain(self.database)
        return [
            OutboxHints(self.database, self.relay),
            Reaper(
                self.database,
                self.outbox,
                self.bus,
                self.leases,
                unsafe=unsafe,
                max_attempts=max_attempts,
                every_s=reap_every_s,
            ),
            Timers(self.database, self.outbox),
            Consumer(self.bus, DEAD_LETTER_QUEUE, dead_letters, on_drain=dead_letters.stop),
        ]

    def close(self) -> None:
        """Hang up, after everything else has stopped."""
        self.bus.close()
        self.database.close()
        self.heartbeat_database.close()
