"""conf.d/*.ini → relay.json"""

import json
import re
from configparser import ConfigParser
from pathlib import Path

RELAY = Path("/srv/relay")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "s": 1, "m": 60, "h": 3600}
TLS = {"yes": "require", "no": "never", "try": "prefer"}
LEVELS = {"quiet": "error", "normal": "warning", "loud": "debug"}


def number(text):
    """10M → 10485760"""
    digits, unit = re.fullmatch(r"(\d+)(\w?)", text).groups()
    return int(digits) * UNITS[unit]


def words(text):
    """a, b → [a, b]"""
    return [word.strip() for word in text.split(",") if word.strip()]


def route(name, old):
    """One route."""
    return {"name": name, "match": words(old["match"]), "via": old["via"], "tls": TLS[old.get("tls", "try")]}


old = ConfigParser()
old.read(sorted((RELAY / "conf.d").glob("*.ini")))
host, _, port = old["server"]["bind"].rpartition(":")
routes = sorted((s for s in old.sections() if s.startswith("route:")), key=lambda s: old.getint(s, "priority"))
limits, log = old["limits"], old["log"]
new = {
    "listen": {"host": host, "port": int(port)},
    "limits": {
        "message_bytes": number(limits["message_size"]),
        "idle_seconds": number(limits["idle"]),
        "connections": int(limits["connections"]),
    },
    "routes": [route(s.partition(":")[2], old[s]) for s in routes if old.getboolean(s, "enabled", fallback=True)],
    "users": {name: sorted(words(roles)) for name, roles in old["users"].items()},
    "log": {
        "file": log["file"],
        "level": LEVELS[log.get("level", "normal")],
        "rotate": log.getboolean("rotate"),
    },
}
(RELAY / "relay.json").write_text(json.dumps(new, indent=2))
