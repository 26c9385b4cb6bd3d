"""The agent definition: what every policy is told first. A task keeps the text it started with."""

from longstride.agent.allowance import TOOL_BUDGETS
from longstride.agent.number import plain
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.egress import Egress
from longstride.contracts.v1.limits import Limits

SECRETS = "/run/longstride/secrets"
"""Where the sandbox shows them."""
SYSTEM = """\
You carry out one task in a Linux workspace, one tool call at a time. Each answer is exactly one JSON object:
{"thought": "why", "plan": ["next", "steps"], "tool": "name", "arguments": {...}}
thought and plan are optional; give plan when it changes. After each call you read its result. When a call fails, read the error and correct it.
When the task is done, call submit with the answer; its checks then run, and if one fails you are told why and go on."""


def opening(submit: SubmitTask) -> tuple[Message, ...]:
    """The first two messages of a task's context."""
    files = "".join(f"\n- {file.path}" for file in submit.inputs)
    listing = f"\n\nFiles in the workspace:{files}" if files else ""
    listing += f"\n\nSecrets, each a file under {SECRETS}: {', '.join(submit.secrets)}" if submit.secrets else ""
    told = submit.instruction + listing + (_network(submit.egress) if submit.egress else "") + _budgets(submit.limits)
    return (Message(role="system", content=SYSTEM), Message(role="user", content=told))


def _network(egress: Egress) -> str:
    """Tools say that there is no network; here there is some."""
    places = "".join(f"\n- {rule}" for rule in egress.rules)
    return (
        "\n\nPrograms that honour HTTP_PROXY and HTTPS_PROXY (pip, curl, urllib) reach these places, and nothing else:"
        f"{places}\nA call may move {egress.max_mbytes} MiB each way."
    )


def _budgets(limits: Limits) -> str:
    """Known from the start, so that an agent can save; the rest it is told when it hits them."""
    told = [f"{plain(most)} {budget.what}" for budget in TOOL_BUDGETS if (most := budget.most(limits)) is not None]
    return f"\n\nAll calls together may use {', '.join(told)}; then the task is over." if told else ""
