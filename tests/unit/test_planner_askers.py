"""Who hears how a task ended."""

from longstride.messaging.handling import DeliveryInfo
from longstride.storage.tasks import TaskHead
from services.planner.askers import ASKERS_AT_MOST, asked_by, askers

SUBMITTED = TaskHead(
    "task_1", "session_1", "default", "queued", 1, "x", "terminal", reply_to="first", correlation_id="a"
)


def asked(head: TaskHead, *queues: str) -> TaskHead:
    for queue in queues:
        head = asked_by(head, DeliveryInfo("planner.submit_task", queue, "a"))
    return head


def test_who_asks_later_does_not_take_the_outcome_from_who_asked_before() -> None:
    assert askers(asked(SUBMITTED, "second", "third")) == [("third", "a"), ("second", "a"), ("first", "a")]


def test_one_queue_may_ask_under_two_names() -> None:
    head = asked_by(SUBMITTED, DeliveryInfo("planner.submit_task", "first", "b"))
    assert askers(head) == [("first", "b"), ("first", "a")]


def test_who_asks_twice_is_told_once() -> None:
    assert askers(asked(SUBMITTED, "second", "first", "first")) == [("first", "a"), ("second", "a")]


def test_a_task_that_nobody_waited_for_gets_its_first_asker() -> None:
    silent = TaskHead("task_1", "session_1", "default", "queued", 1, "x", "terminal")
    assert askers(silent) == []
    assert askers(asked(silent, "only")) == [("only", "a")]


def test_the_oldest_are_let_go() -> None:
    head = asked(SUBMITTED, *map(str, range(ASKERS_AT_MOST + 3)))
    assert [asker.reply_to for asker in askers(head)] == [
        str(number) for number in reversed(range(3, ASKERS_AT_MOST + 3))
    ]
