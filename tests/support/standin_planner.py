"""The planner's side of the broker without a planner: a queue, and answers as a test wants them."""

import threading
from collections.abc import Callable
from types import TracebackType

import pika

from longstride.contracts.envelope import Envelope, decode
from longstride.contracts.model import Contract
from longstride.contracts.topology import DEAD_LETTER_EXCHANGE, EXCHANGE, durable_bindings
from longstride.contracts.v1.events import TaskAccepted, TaskEnded

QUEUE = "longstride.planner"
Answers = Callable[[Envelope], list[Contract | Envelope]]

DONE = TaskEnded(outcome="succeeded", reason="submitted", answer="42", steps=2)


def accepts_and_ends(_: Envelope) -> list[Contract | Envelope]:
    return [TaskAccepted(), DONE]


def declare(amqp_url: str) -> None:
    """The exchange and the planner's queue, as a planner leaves them behind."""
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": DEAD_LETTER_EXCHANGE}
        channel.queue_declare(QUEUE, durable=True, arguments=arguments)
        for queue, key in durable_bindings():
            if queue == QUEUE:
                channel.queue_bind(QUEUE, EXCHANGE, key)


class StandinPlanner:
    """Answers every message in a thread of its own, and remembers what it was sent."""

    def __init__(self, amqp_url: str, answers: Answers = accepts_and_ends) -> None:
        declare(amqp_url)
        self.seen: list[Envelope] = []
        self._answers = answers
        self._url = amqp_url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "StandinPlanner":
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(10)

    def _serve(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            for method, properties, body in channel.consume(QUEUE, inactivity_timeout=0.05):
                if self._stop.is_set():
                    return
                if method is not None:
                    self._handle(channel, method, properties, body)

    def _handle(self, channel, method, properties, body: bytes) -> None:
        request = decode(body)
        self.seen.append(request)
        if properties.reply_to:
            for answer in self._answers(request):
                own = {"task_id": request.task_id or "task_of_a_stranger"}
                reply = answer if isinstance(answer, Envelope) else request.follow(answer, **own)
                channel.basic_publish(
                    "",
                    properties.reply_to,
                    reply.encode(),
                    pika.BasicProperties(correlation_id=properties.correlation_id),
                )
        channel.basic_ack(method.delivery_tag)
