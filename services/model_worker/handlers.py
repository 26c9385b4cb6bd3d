"""Message in → a policy asked → message out; and new versions put into service."""

import time
from collections.abc import Callable

from longstride.contracts.envelope import Envelope
from longstride.contracts.v1.commands import Generate
from longstride.contracts.v1.events import Generated, PolicyPublished
from longstride.messaging.lease import HeldLease
from longstride.messaging.work import Answer, WorkHandler
from longstride.observability import names
from longstride.observability.spans import Attributes, set_attributes, span
from longstride.policies.artifacts import Artifacts
from longstride.policies.base import PolicyUnavailable
from longstride.policies.registry import PolicyRegistry
from longstride.policies.turn import answer
from longstride.tools.registry import Registry


class ModelWorker:
    """Asks policies. It keeps no state that a restart would lose: contexts and token records are objects."""

    def __init__(self, policies: PolicyRegistry, artifacts: Artifacts, tools: Registry) -> None:
        self._policies = policies
        self._artifacts = artifacts
        self._tools = tools

    def generate(self, envelope: Envelope, message: Generate, held: HeldLease) -> Answer | None:
        """One model call. A policy that cannot be had is an answer too: the task ends, and says why."""
        assert envelope.session_id is not None, "the planner addresses every command"
        asked = message.policy or self._policies.default
        attributes: Attributes = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: asked, names.STEP: message.step}
        with span(names.CHAT, asked, attributes=attributes, kind="client") as current:
            try:
                policy = self._policies.resolve(message.policy)
            except PolicyUnavailable as error:
                return Answer(Generated(step=message.step, text="", error=str(error)[:8000], policy=asked))
            started = time.perf_counter()
            generated = answer(
                message,
                policy=policy,
                artifacts=self._artifacts,
                session_id=envelope.session_id,
                tools=self._tools.specs(message.tools),
            )
            generated = _timed(generated, time.perf_counter() - started)
            set_attributes(
                current,
                {
                    names.RESPONSE_MODEL: generated.policy,
                    names.POLICY_VERSION: generated.policy_version,
                    names.INPUT_TOKENS: generated.usage.input_tokens,
                    names.OUTPUT_TOKENS: generated.usage.output_tokens,
                    names.FINISH_REASONS: [generated.finish_reason],
                },
            )
            return Answer(generated)

    def policy_published(self, message: PolicyPublished) -> None:
        """Serve the version from the next call on; calls in flight end on the old one.

        Raises:
            PolicyUnavailable, WeightsRefused, StorageError: it is not served; see ``PolicyRegistry.publish``.
        """
        attributes: Attributes = {names.POLICY_VERSION: message.policy_version}
        with span(names.LOAD_POLICY, message.policy, attributes=attributes) as current:
            set_attributes(current, {names.PROBE_GAP: self._policies.publish(message)})


def _timed(generated: Generated, seconds: float) -> Generated:
    """With our clock's reading, where the policy has not looked at its own."""
    if generated.usage.wall_ms:
        return generated
    return generated.model_copy(update={"usage": generated.usage.model_copy(update={"wall_ms": seconds * 1e3})})


def handlers(worker: ModelWorker) -> dict[str, WorkHandler]:
    """The model-worker's commands."""
    return {"generate": worker.generate}


def listeners(worker: ModelWorker) -> dict[str, Callable[[PolicyPublished], None]]:
    """The events that every model-worker hears on a queue of its own."""
    return {"policy_published": worker.policy_published}
