"""Lines of a test script that need a network, which no sandbox has: such tests would fail whatever the agent did."""

import re
from pathlib import Path

COMMAND = r"(?:^|[;&|(]|\b(?:if|then|else|do|sudo)\s)\s*+"
NEEDS = re.compile(
    COMMAND
    + r"(?:(?:apt-get|apt|apk|dnf|yum|brew|npm|cargo install|uvx|uv (?:pip install|sync|tool)|conda)\b.*"
    + r"|(?:curl|wget|git clone)\b.*\b(?:https?|git|ssh)://(?!localhost|127\.|\[::1\]).*"
    + r"|(?:python3? -m )?pip3? install\b(?!.*--no-index).*)"
)
WHY = "which sandboxes do not have: use what the executor's host has, or ship wheels beside the tests"

READ, LOOKED_AT = 256 * 1024, 2048
"""Bytes of a script, and characters of a line: what lies beyond was made by a program."""


def use_of_the_network(script: Path) -> str | None:
    """``lines 5, 8 (`apt-get update` …) need the network …``, where a shell script does; ``None`` where it does not."""
    if script.suffix != ".sh":
        return None
    with script.open("rb") as file:
        lines = file.read(READ).decode(errors="replace").splitlines()
    told = [(number, line[:LOOKED_AT]) for number, line in enumerate(lines, 1) if not line.lstrip().startswith("#")]
    found = [(number, NEEDS.search(line)) for number, line in told]
    uses = [(number, use[0].strip()) for number, use in found if use]
    if not uses:
        return None
    numbers = ", ".join(str(number) for number, _ in uses)
    return f"line{'s' if len(uses) > 1 else ''} {numbers} (`{uses[0][1][:80]}`) need the network, {WHY}"
