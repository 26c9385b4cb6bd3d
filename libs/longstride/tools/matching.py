"""Regular expressions against what an agent wrote. Python's ``re`` can take exponential time and cannot be interrupted, so it
runs in a child that is killed when it does."""

import json
import re
import subprocess
import sys

SECONDS = 5.0
CHILD = """\
import json, re, sys
pattern, text = json.load(sys.stdin)
try:
    print(json.dumps(re.fullmatch(pattern, text) is not None))
except (re.error, OverflowError, RecursionError, MemoryError) as error:
    print(json.dumps(str(error) or type(error).__name__))
"""


def bounded_match(pattern: str, text: str, seconds: float = SECONDS) -> bool:
    """Whether the whole text matches.

    Raises:
        re.error: the pattern is none.
        TimeoutError: it took longer.
    """
    command = [sys.executable, "-I", "-S", "-c", CHILD]
    try:
        done = subprocess.run(
            command, input=json.dumps([pattern, text]), capture_output=True, text=True, timeout=seconds, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"matching took longer than {seconds:g} s") from error
    said = json.loads(done.stdout)
    if isinstance(said, str):
        raise re.error(said)
    return bool(said)
