"""The context: sealed in runs, compacted before it is full, linear in the steps."""

from longstride.agent.context import SEAL_BYTES, Context, compact, progress, segment, unroll
from longstride.agent.decision import Dispatch, Store
from longstride.agent.events import ContextCompacted, store
from longstride.contracts.artifact import ref_for
from longstride.contracts.envelope import seal
from longstride.contracts.v1.context import ContextHead, Message
from longstride.contracts.v1.events import Generated
from longstride.contracts.v1.limits import Limits
from tests.support.rehearsal import Rehearsal


def stored(play: Rehearsal) -> dict[str, bytes]:
    return {e.ref.key: e.data for d in play.decisions for e in d.effects if isinstance(e, Store)}


def test_unroll_gives_every_message_in_order_across_seals() -> None:
    play = Rehearsal(limits=Limits(steps=100)).start()
    for i in range(40):
        play.step(f"{i} " + "x" * 2000, command=f"c{i}")
    objects = stored(play)
    head = play.task.context.head()
    assert head.parent is not None
    seen = [m.content.split()[0] for m in unroll(head, lambda ref: objects[ref.key]) if m.role == "tool"]
    assert seen == [str(i) for i in range(40)]
    assert head.messages == 2 + 80


def test_bytes_grow_linearly_with_500_steps() -> None:
    """Events, objects and commands of steps 401…500 are no larger than those of steps 1…100, plus a tenth."""

    def cost(decisions: list) -> int:
        events = sum(len(str(store(event))) for d in decisions for event in d.events)
        objects = sum(len(e.data) for d in decisions for e in d.effects if isinstance(e, Store))
        commands = sum(len(seal(e.command).encode()) for d in decisions for e in d.effects if isinstance(e, Dispatch))
        return events + objects + commands

    play = Rehearsal(limits=Limits(steps=600)).start()
    for i in range(500):
        play.step(f"line {i}\n" * 20, command=f"head -{i} f")
    assert play.task.step == 501
    decisions = play.decisions[2:]
    assert cost(decisions[800:1000]) < 1.1 * cost(decisions[:200])
    assert max(len(d.task.turns) for d in decisions) == 20


def test_a_nearly_full_context_is_compacted_and_keeps_its_opening_and_the_last_exchange() -> None:
    play = Rehearsal("Find the needle.").start()
    for i in range(12):
        answer = Generated(step=play.task.step, text="{}", policy="p", context_window=2_000)
        play.hear(answer.model_copy(update={"format_error": None, "action": _shell(i)})).observe("y" * 600)
    compactions = [e for e in play.events if isinstance(e, ContextCompacted)]
    assert compactions
    messages = compactions[0].messages
    assert [m.role for m in messages[:2]] == ["system", "user"]
    assert messages[1].content == "Find the needle."
    assert "step 1: shell" in messages[2].content
    assert all(m.tokens is None for m in messages)
    assert compactions[0].archived.key in stored(play)
    assert play.task.context.tokens < 2_000


def _shell(i: int) -> object:
    from longstride.contracts.v1.action import Action

    return Action(tool="shell", arguments={"command": f"c{i}"})


def test_a_soft_compaction_that_wins_too_little_becomes_a_hard_reset() -> None:
    opening = (Message(role="system", content="s"), Message(role="user", content="u"))
    long = (Message(role="assistant", content="a" * 6000), Message(role="tool", content="t" * 6000))
    context = Context().add(*opening).add(*long)
    archived, _ = segment(context, "s1")
    soft, hard = compact(context, archived, ()), compact(context, archived, (), hard=True)
    assert not progress(context, soft)
    assert progress(context, hard)
    assert len(hard[-1].content) < 2_100


def test_the_tail_of_a_command_never_exceeds_the_seal_limit() -> None:
    play = Rehearsal(limits=Limits(steps=100)).start()
    for i in range(30):
        play.step("z" * 8000, command=f"c{i}")
        for effect in play.last.effects:
            if isinstance(effect, Dispatch) and effect.phase == "generate":
                assert sum(len(m.content) for m in effect.command.context.tail) <= SEAL_BYTES


def test_unroll_of_an_unsealed_context_needs_no_store() -> None:
    head = ContextHead(tail=(Message(role="user", content="x"),), messages=1)
    assert unroll(head, lambda ref: b"") == head.tail


def test_the_reference_of_a_segment_is_that_of_its_bytes() -> None:
    ref, data = segment(Context().add(Message(role="user", content="x")), "session_1")
    assert ref == ref_for(data, session="session_1", kind="context", media_type="application/json")
