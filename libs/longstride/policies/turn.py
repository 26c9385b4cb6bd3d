"""One model call: the context is read, the policy asked, its answer parsed, its tokens kept."""

import json
from collections.abc import Sequence

from longstride.agent.action_format import FormatError, parse, render
from longstride.agent.context import unroll
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action, ToolSpec
from longstride.contracts.v1.commands import Generate
from longstride.contracts.v1.events import Generated
from longstride.contracts.v1.tokens import TokenRecord
from longstride.policies.artifacts import Artifacts
from longstride.policies.base import Generation, Policy, PolicyError, Turn

MAX_TEXT_BYTES = 16_384
"""Of UTF-8; a longer answer is a format error."""
RECORD_KIND, RECORD_TYPE = "tokens", "application/json"


def answer(
    command: Generate, *, policy: Policy, artifacts: Artifacts, session_id: str, tools: Sequence[ToolSpec]
) -> Generated:
    """Ask a policy for the next action.

    An answer that is no action comes back as ``format_error``, a policy that gives none as ``error``. Running it again
    with the same command stores the same objects.

    Args:
        command: what to answer.
        policy: whom to ask.
        artifacts: holds the context and the token records; ``CachedArtifacts`` saves reading them at each step.
        session_id: under which the token record is kept.
        tools: the specs of ``command.tools``.

    Raises:
        Whatever ``artifacts`` raises; nothing of the policy's own ``PolicyError`` s.
    """
    turns = read_turns(command, artifacts)
    try:
        generation = policy.generate(turns, tools, command.sampling, command.timeout_s)
    except PolicyError as error:
        return Generated(step=command.step, text="", error=_bounded(str(error), 8000), **_who(policy))
    text, action, format_error = read_answer(generation)
    return Generated(
        step=command.step,
        text=text,
        action=action,
        format_error=format_error,
        tokens=_keep(generation.record, turns, artifacts, session_id),
        usage=generation.usage,
        policy=generation.policy,
        policy_version=generation.policy_version,
        context_window=policy.context_window,
        finish_reason=generation.finish_reason,
    )


def read_turns(command: Generate, artifacts: Artifacts) -> tuple[Turn, ...]:
    """The whole conversation, oldest first, with the token records of its answers."""
    return tuple(Turn(m, _record(m.tokens, artifacts)) for m in unroll(command.context, artifacts.get))


def read_answer(generation: Generation) -> tuple[str, Action | None, str | None]:
    """(text to keep, action or none, what is wrong with it or none)."""
    text = _text(generation)
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_TEXT_BYTES:
        reason = (
            f"the answer has {size} bytes, and at most {MAX_TEXT_BYTES} are read; write long content in several steps"
        )
        return _bounded(text, MAX_TEXT_BYTES), None, reason
    try:
        return text, parse(text), None
    except FormatError as error:
        cut = "the answer was cut off at its token limit: " if generation.finish_reason == "length" else ""
        return text, None, f"{cut}{error}"


def _text(generation: Generation) -> str:
    """The answer in the one text form; a tool call in a field of its own is put into it as it is, broken or not."""
    call = generation.tool_call
    if call is None:
        return generation.text
    thought = f'"thought": {json.dumps(generation.text, ensure_ascii=False)}, ' if generation.text.strip() else ""
    text = f'{{{thought}"tool": {json.dumps(call.name)}, "arguments": {call.arguments.strip() or "{}"}}}'
    try:
        return render(parse(text))
    except FormatError:
        return text


def _keep(
    record: TokenRecord | None, turns: Sequence[Turn], artifacts: Artifacts, session_id: str
) -> ArtifactRef | None:
    if record is None:
        return None
    data = chained(record, turns, artifacts).model_dump_json(exclude_none=True).encode()
    return artifacts.put(data, session=session_id, kind=RECORD_KIND, media_type=RECORD_TYPE)


def chained(record: TokenRecord, turns: Sequence[Turn], artifacts: Artifacts) -> TokenRecord:
    """The record with only the ids that are new since the last answer's record, where its prompt really starts with that one's ids.

    It does not after a compaction, or when another policy answered in between: then the prompt stands whole.
    """
    last = next((turn for turn in reversed(turns) if turn.message.role == "assistant"), None)
    if last is None or last.record is None or last.record.policy != record.policy:
        return record
    before = _sequence(last.record, artifacts)
    if record.prompt_ids[: len(before)] != before:
        return record
    return record.model_copy(update={"prefix": last.message.tokens, "prompt_ids": record.prompt_ids[len(before) :]})


def _sequence(record: TokenRecord, artifacts: Artifacts) -> tuple[int, ...]:
    """All ids up to and with a record's output."""
    parts = [record.output_ids, record.prompt_ids]
    while record.prefix is not None:
        record = TokenRecord.model_validate_json(artifacts.get(record.prefix))
        parts += [record.output_ids, record.prompt_ids]
    return tuple(token for part in reversed(parts) for token in part)


def _record(ref: ArtifactRef | None, artifacts: Artifacts) -> TokenRecord | None:
    return None if ref is None else TokenRecord.model_validate_json(artifacts.get(ref))


def _bounded(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _who(policy: Policy) -> dict[str, object]:
    return {"policy": policy.name, "policy_version": policy.version, "context_window": policy.context_window}
