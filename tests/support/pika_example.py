"""The README's program for strangers, as it stands there."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
EXAMPLE = re.compile(r"<!-- pika example.*?-->\n```python\n(?P<code>.*?)```\n<!-- end of pika example -->", re.DOTALL)


def example() -> str:
    found = EXAMPLE.search(README.read_text())
    assert found, "README.md has no pika example between its markers"
    return found["code"]
