"""Lines of a test script that need a network, which no sandbox has: such tests would fail whatever the agent did."""

import re
from collections.abc import Iterator
from pathlib import Path

COMMAND = r"(?:^|[;&|(]\s*|\b(?:if|then|else|do|sudo)\s+)\s*"
NEEDS = re.compile(
    COMMAND
    + r"(?:(?:apt-get|apt|apk|dnf|yum|brew|npm|cargo install|uvx|uv (?:pip install|sync|tool)|conda)\b.*"
    + r"|(?:curl|wget|git clone)\b.*\b(?:https?|git|ssh)://(?!localhost|127\.|\[::1\]).*"
    + r"|(?:python3? -m )?pip3? install\b(?!.*--no-index).*)"
)
WHY = "needs the network, and sandboxes have none: let the script use what the executor's host has, or ship wheels beside it"


def uses_of_the_network(script: Path) -> Iterator[str]:
    """``line 6: `curl https://…` needs the network …`` for each line of a shell script that does."""
    if script.suffix != ".sh":
        return
    lines = script.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("#") and (found := NEEDS.search(line)):
            yield f"line {number}: `{found[0].strip()[:80]}` {WHY}"
