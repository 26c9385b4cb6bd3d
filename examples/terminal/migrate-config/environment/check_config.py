"""check_config.py FILE: whether a configuration is well-formed."""

import json
import sys

SHAPE = {
    "listen": {"host": str, "port": int},
    "limits": {"message_bytes": int, "idle_seconds": int, "connections": int},
    "routes": list,
    "users": dict,
    "log": {"file": str, "level": str, "rotate": bool},
}


def problems(told, shape, at=""):
    """Where ``told`` is not as ``shape``."""
    if not isinstance(shape, dict):
        return [] if type(told) is shape else [f"{at}: must be {shape.__name__}, is {told!r}"]
    if not isinstance(told, dict) or set(told) != set(shape):
        return [f"{at or 'the file'}: must be an object with {', '.join(shape)}"]
    return [problem for name in shape for problem in problems(told[name], shape[name], f"{at}{name}")]


found = problems(json.load(open(sys.argv[1])), SHAPE)
print("\n".join(found) or "well-formed")
sys.exit(bool(found))
