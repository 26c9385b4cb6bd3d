"""ask.py health | answers"""

import json
import os
import sys
import urllib.request


def get(path):
    """What the service answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['STOCK_PORT']}{path}", timeout=2) as answer:
        return json.load(answer)


def answers():
    """From all pages."""
    first = get("/items?page=1")
    items = first["items"] + [
        item for page in range(2, first["pages"] + 1) for item in get(f"/items?page={page}")["items"]
    ]
    scarce = sorted(item["name"] for item in items if item["count"] < 5)
    return {"total": sum(item["count"] for item in items), "scarce": scarce}


print(json.dumps(get("/health") if sys.argv[1] == "health" else answers()))
