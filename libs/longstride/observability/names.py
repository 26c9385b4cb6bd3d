"""The names of spans, attributes and metrics: spelled here and nowhere else.

``gen_ai.*`` and ``messaging.*`` follow OpenTelemetry's semantic conventions (a test compares them with the installed
``opentelemetry-semantic-conventions``); what the conventions have no word for is ``longstride.*``.
A span is called ``<name> <target>``, e.g. ``chat builtin`` or ``execute_tool shell``: few distinct names, so that they can be grouped.
"""

from typing import NewType

SpanName = NewType("SpanName", str)
"""What a span does, without its target."""
Attribute = NewType("Attribute", str)
"""The key of an attribute of spans, metrics and log records."""
MetricName = NewType("MetricName", str)

# --- spans: the conventions' -------------------------------------------------------------------------------------------
INVOKE_AGENT = SpanName("invoke_agent")
"""The root of a task's trace, or of a later segment of it: a start marker, without a duration of its own."""
CHAT = SpanName("chat")
"""One model call. Target: the policy."""
EXECUTE_TOOL = SpanName("execute_tool")
"""One tool call. Target: the tool."""
SEND = SpanName("send")
"""A message on its way to the broker, until its confirm. Target: the routing key."""
PROCESS = SpanName("process")
"""A message being handled. Target: the queue."""

# --- spans: ours -------------------------------------------------------------------------------------------------------
DECIDE = SpanName("decide")
"""One transition of a task: events recorded, effects asked for."""
PLAN = SpanName("plan")
"""The agent's plan was made or revised."""
REFLECT = SpanName("reflect")
"""An observation was read for what went wrong."""
COMPACT = SpanName("compact_context")
EVALUATE = SpanName("evaluate")
"""One check run against a submission. Target: the check."""
RESTORE = SpanName("restore_workspace")
SNAPSHOT = SpanName("snapshot_workspace")
FIRE_TIMER = SpanName("fire_timer")
"""A timer became a message. Target: the message's type."""
REAP = SpanName("reap")
"""An expired attempt was taken over or given up."""
RECORD_TRAJECTORY = SpanName("record_trajectory")
REWARD = SpanName("reward")
UPDATE_POLICY = SpanName("update_policy")
"""One training update. Target: the policy."""
PUBLISH_POLICY = SpanName("publish_policy")
"""A new version became servable. Target: the policy."""
LOAD_POLICY = SpanName("load_policy")
"""Weights were put into service. Target: the policy."""

DENIED = "tool_call_denied"
"""The event of a transition that refused a tool call."""
EXCEPTION = "exception"
"""The event that the conventions give a failed span."""

# --- attributes: gen_ai ------------------------------------------------------------------------------------------------
OPERATION = Attribute("gen_ai.operation.name")
AGENT_NAME = Attribute("gen_ai.agent.name")
CONVERSATION_ID = Attribute("gen_ai.conversation.id")
"""The session."""
PROVIDER = Attribute("gen_ai.provider.name")
REQUEST_MODEL = Attribute("gen_ai.request.model")
REQUEST_TEMPERATURE = Attribute("gen_ai.request.temperature")
REQUEST_TOP_P = Attribute("gen_ai.request.top_p")
REQUEST_MAX_TOKENS = Attribute("gen_ai.request.max_tokens")
REQUEST_SEED = Attribute("gen_ai.request.seed")
RESPONSE_MODEL = Attribute("gen_ai.response.model")
RESPONSE_ID = Attribute("gen_ai.response.id")
FINISH_REASONS = Attribute("gen_ai.response.finish_reasons")
INPUT_TOKENS = Attribute("gen_ai.usage.input_tokens")
OUTPUT_TOKENS = Attribute("gen_ai.usage.output_tokens")
TOKEN_TYPE = Attribute("gen_ai.token.type")
TOOL_NAME = Attribute("gen_ai.tool.name")
TOOL_TYPE = Attribute("gen_ai.tool.type")
TOOL_CALL_ID = Attribute("gen_ai.tool.call.id")
CHECK_NAME = Attribute("gen_ai.evaluation.name")
CHECK_SCORE = Attribute("gen_ai.evaluation.score.value")
CHECK_LABEL = Attribute("gen_ai.evaluation.score.label")
"""``pass`` or ``fail``."""

# --- attributes: content, recorded only on request ---------------------------------------------------------------------
INPUT_MESSAGES = Attribute("gen_ai.input.messages")
OUTPUT_MESSAGES = Attribute("gen_ai.output.messages")
SYSTEM_INSTRUCTIONS = Attribute("gen_ai.system_instructions")
TOOL_ARGUMENTS = Attribute("gen_ai.tool.call.arguments")
TOOL_RESULT = Attribute("gen_ai.tool.call.result")
CHECK_EXPLANATION = Attribute("gen_ai.evaluation.explanation")
CONTENT = frozenset(
    {INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS, TOOL_ARGUMENTS, TOOL_RESULT, CHECK_EXPLANATION}
)
"""What people and models wrote. It leaves the process only when ``LONGSTRIDE_CAPTURE_CONTENT`` is true."""

# --- attributes: messaging ---------------------------------------------------------------------------------------------
MESSAGING_SYSTEM = Attribute("messaging.system")
MESSAGING_OPERATION_NAME = Attribute("messaging.operation.name")
MESSAGING_OPERATION_TYPE = Attribute("messaging.operation.type")
MESSAGE_ID = Attribute("messaging.message.id")
DESTINATION = Attribute("messaging.destination.name")
BODY_SIZE = Attribute("messaging.message.body.size")
ROUTING_KEY = Attribute("messaging.rabbitmq.destination.routing_key")

# --- attributes: general -----------------------------------------------------------------------------------------------
ERROR_TYPE = Attribute("error.type")
EXCEPTION_TYPE = Attribute("exception.type")
EXCEPTION_MESSAGE = Attribute("exception.message")
EXCEPTION_STACKTRACE = Attribute("exception.stacktrace")
SERVICE_NAME = Attribute("service.name")
SERVICE_INSTANCE = Attribute("service.instance.id")
SERVICE_VERSION = Attribute("service.version")

# --- attributes: ours --------------------------------------------------------------------------------------------------
TASK_ID = Attribute("longstride.task.id")
STEP = Attribute("longstride.step")
TENANT = Attribute("longstride.tenant")
ATTEMPT = Attribute("longstride.attempt")
SEGMENT = Attribute("longstride.trace.segment")
"""0 for the root of a task, 1, 2 … for the roots of its later segments."""
ROLE = Attribute("longstride.role")
"""The part of the flow that the span plays, where it is not its process's own: the timers, a trainer inside a worker."""
MESSAGE_TYPE = Attribute("longstride.message.type")
CAUSATION_ID = Attribute("longstride.message.causation_id")
TRACK = Attribute("longstride.track")
POLICY = Attribute("longstride.policy")
POLICY_VERSION = Attribute("longstride.policy.version")
PROBE_GAP = Attribute("longstride.policy.probe_gap")
"""Mean distance, in nats, of the served version's log-probabilities from its trainer's."""
STATUS = Attribute("longstride.status")
"""A step's or observation's: ok, failed, timeout …"""
OUTCOME = Attribute("longstride.outcome")
REASON = Attribute("longstride.reason")
REWARD_VALUE = Attribute("longstride.reward")
COST_USD = Attribute("longstride.cost_usd")
EXIT_CODE = Attribute("longstride.exit_code")
LIMIT = Attribute("longstride.limit")
ISOLATION = Attribute("longstride.isolation")
CPU_MS = Attribute("longstride.cpu_ms")
MAX_MEMORY_MB = Attribute("longstride.max_memory_mb")
WORKSPACE = Attribute("longstride.workspace.sha256")
EVENTS = Attribute("longstride.events")
"""Types of the task events that a transition recorded."""
EFFECTS = Attribute("longstride.effects")
PHASE = Attribute("longstride.phase")
"""generate or execute."""
QUEUE_WAIT_MS = Attribute("longstride.queue.wait_ms")
"""From the message's ``occurred_at`` to the start of its handling."""
BATCH_ID = Attribute("longstride.batch.id")
BATCH_SIZE = Attribute("longstride.batch.size")
LOSS = Attribute("longstride.loss")
INCARNATION = Attribute("longstride.incarnation")
"""The process start that leases are held under; a forked child shares it, with a ``service.instance.id`` of its own."""
SINK = Attribute("longstride.telemetry.sink")
SOURCE = Attribute("longstride.sandbox.source")
"""warm: the sandbox waited for the call; cold: the call for it."""
STATE = Attribute("longstride.sandbox.state")
"""ready: it waits; used: it works; target: as many should wait."""

# --- metrics -----------------------------------------------------------------------------------------------------------
TASKS_ENDED = MetricName("longstride.tasks.ended")
STEPS = MetricName("longstride.steps")
STEP_DURATION = MetricName("longstride.step.duration")
TOKEN_USAGE = MetricName("gen_ai.client.token.usage")
QUEUE_WAIT = MetricName("longstride.queue.wait")
OUTBOX_BACKLOG = MetricName("longstride.outbox.backlog")
OUTBOX_AGE = MetricName("longstride.outbox.age")
ATTEMPTS_LOST = MetricName("longstride.attempts.lost")
POLICY_LOADS = MetricName("longstride.policy.loads")
DEAD_LETTERS = MetricName("longstride.dead_letters")
TELEMETRY_DROPPED = MetricName("longstride.telemetry.dropped")
SANDBOX_POOL = MetricName("longstride.sandbox.pool")
SANDBOX_WAIT = MetricName("longstride.sandbox.wait")
