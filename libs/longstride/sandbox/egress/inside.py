"""What a command with a way out is given inside its sandbox: the relay, and the variables that programs look for."""

from dataclasses import replace
from pathlib import Path

from longstride.sandbox import certificates
from longstride.sandbox.base import SUPPORT, Command

RELAY, SOCKET = "egress-relay.py", "egress.sock"
"""Names in the support folder."""
PORT = 3128
RELAY_MB, RELAY_PROCESSES = 16, 1
"""What the relay may use is no part of the agent's share."""
URL = f"http://127.0.0.1:{PORT}"
HERE = "localhost,127.0.0.1,::1"
VARIABLES = certificates.VARIABLES | {
    name: value
    for upper, value in {"HTTP_PROXY": URL, "HTTPS_PROXY": URL, "ALL_PROXY": URL, "NO_PROXY": HERE}.items()
    for name in (upper, upper.lower())
}


def with_relay(command: Command) -> Command:
    """The command as it is started: unchanged where it has no way out."""
    if command.egress is None:
        return command
    start = ("python3", "-I", "-S", f"{SUPPORT}/{RELAY}", f"{SUPPORT}/{SOCKET}", str(PORT), "--")
    limits = command.limits
    room = {"memory_mb": limits.memory_mb + RELAY_MB, "processes": limits.processes + RELAY_PROCESSES}
    return replace(
        command,
        argv=(*start, *command.argv),
        env={**VARIABLES, **command.env},
        files={**command.files, RELAY: Path(__file__).with_name("relay.py").read_bytes()},
        limits=limits.model_copy(update=room),
    )
