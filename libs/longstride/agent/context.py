"""The policy's context: append-only, sealed in runs, compacted before it is full."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from longstride.contracts.artifact import ArtifactRef, ref_for
from longstride.contracts.v1.context import ContextHead, ContextSegment, Message

SEAL_BYTES = 16 * 1024
"""A tail longer than this becomes an object, so that no command carries more."""
FULL = 0.75
"""The share of the policy's window at which the context is compacted."""
BYTES_PER_TOKEN = 3
"""Used for text that no policy has counted yet; on the safe side for English and code."""
SUMMARY_LINES = 40
MEDIA_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Context:
    """Where the messages are, and how large they are."""

    parent: ArtifactRef | None = None
    tail: tuple[Message, ...] = ()
    count: int = 0
    opening: tuple[Message, ...] = ()
    """System prompt and instruction: they survive every compaction."""
    counted_tokens: int = 0
    """What the last model call read and wrote, by the policy's own count."""
    uncounted_bytes: int = 0
    """Text added since."""
    window: int | None = None
    """Tokens the policy takes; ``None`` until it has said so."""
    digests: tuple[str, ...] = ()
    """One line a step, for the summary."""
    omitted: int = 0
    """Steps that have dropped out of the summary."""

    @classmethod
    def resume(cls, parent: ArtifactRef | None, tail: tuple[Message, ...], count: int) -> "Context":
        """The context of a forked task."""
        return cls(parent=parent, tail=tail, count=count, uncounted_bytes=size(tail))

    def add(self, *messages: Message) -> "Context":
        """With messages at the end."""
        opening = self.opening or tuple(m for m in messages if m.role in ("system", "user"))
        return replace(
            self,
            tail=(*self.tail, *messages),
            count=self.count + len(messages),
            opening=opening,
            uncounted_bytes=self.uncounted_bytes + size(messages),
        )

    def measured(self, tokens: int, window: int | None) -> "Context":
        """With the policy's count of everything so far. A policy that does not count leaves our estimate."""
        counted = replace(self, counted_tokens=tokens, uncounted_bytes=0) if tokens else self
        return replace(counted, window=window or self.window)

    def digested(self, line: str) -> "Context":
        """With one more line for the summary; the oldest drop out."""
        lines = (*self.digests, line)
        return replace(self, digests=lines[-SUMMARY_LINES:], omitted=self.omitted + max(0, len(lines) - SUMMARY_LINES))

    def sealed(self, ref: ArtifactRef) -> "Context":
        """With the tail in an object."""
        return replace(self, parent=ref, tail=())

    def compacted(self, messages: tuple[Message, ...]) -> "Context":
        """Started anew with a summary."""
        return replace(
            self, parent=None, tail=messages, count=len(messages), counted_tokens=0, uncounted_bytes=size(messages)
        )

    @property
    def tokens(self) -> int:
        """Our estimate of what the next model call will read."""
        return self.counted_tokens + self.uncounted_bytes // BYTES_PER_TOKEN

    @property
    def overlong(self) -> bool:
        """The tail should be sealed."""
        return size(self.tail) > SEAL_BYTES

    @property
    def nearly_full(self) -> bool:
        """The context should be compacted."""
        return self.window is not None and self.tokens > FULL * self.window

    def head(self) -> ContextHead:
        """As a model call carries it."""
        return ContextHead(parent=self.parent, tail=self.tail, messages=self.count)


def size(messages: tuple[Message, ...]) -> int:
    """Bytes of the messages' text."""
    return sum(len(message.content.encode()) for message in messages)


def segment(context: Context, session: str) -> tuple[ArtifactRef, bytes]:
    """The tail as an object: its reference and its bytes."""
    data = ContextSegment(parent=context.parent, messages=context.tail).model_dump_json(exclude_none=True).encode()
    return ref_for(data, session=session, kind="context", media_type=MEDIA_TYPE), data


def compact(
    context: Context, archived: ArtifactRef, plan: tuple[str, ...], *, hard: bool = False
) -> tuple[Message, ...]:
    """The shorter context: opening, a summary of what was done, and the last exchange (the last message alone when ``hard``)."""
    summary = Message(role="user", content=_summary(context, archived, plan))
    last = context.tail[-1:] if hard else context.tail[-2:]
    kept = tuple(_short(m, 2_000 if hard else 6_000) for m in last if m not in context.opening)
    return (*context.opening, summary, *kept)


def progress(context: Context, messages: tuple[Message, ...]) -> bool:
    """Compaction must win back at least a third of the context, or it would have to run again at once."""
    return size(messages) // BYTES_PER_TOKEN < context.tokens * 2 / 3


def _summary(context: Context, archived: ArtifactRef, plan: tuple[str, ...]) -> str:
    lines = [f"[Earlier steps were taken out of this conversation; the whole record is {archived.key}.]"]
    lines += ["Plan: " + "; ".join(plan)] if plan else []
    lines += (
        [f"({context.omitted} earlier steps are not listed; call recall with a step number to read one.)"]
        if context.omitted
        else []
    )
    return "\n".join([*lines, "Done so far:", *context.digests])


def _short(message: Message, most: int) -> Message:
    """The message without its token record: a changed context is tokenized anew."""
    text = message.content
    cut = text if len(text) <= most else f"{text[: most // 2]}\n[… cut …]\n{text[-most // 2 :]}"
    return message.model_copy(update={"content": cut, "tokens": None})


Load = Callable[[ArtifactRef], bytes]


def unroll(head: ContextHead, load: Load) -> tuple[Message, ...]:
    """All messages of a context, oldest first. ``load`` fetches a segment."""
    runs, parent = [head.tail], head.parent
    while parent is not None:
        sealed = ContextSegment.model_validate_json(load(parent))
        runs.append(sealed.messages)
        parent = sealed.parent
    return tuple(message for run in reversed(runs) for message in run)
