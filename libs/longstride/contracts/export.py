"""Writes the JSON Schema of the envelope and of every message: ``python -m longstride.contracts.export``."""

import json
from pathlib import Path

from longstride.contracts.envelope import Envelope
from longstride.contracts.model import Contract
from longstride.contracts.v1 import MESSAGES

SCHEMAS = Path(__file__).parent / "schemas" / "v1"


def schemas() -> dict[str, str]:
    """File name → text, for the envelope and each message type."""
    models: dict[str, type[Contract]] = {"envelope": Envelope, **MESSAGES}
    return {
        f"{name}.json": json.dumps(model.model_json_schema(), indent=2, sort_keys=True) + "\n"
        for name, model in models.items()
    }


def main() -> None:
    """Write every schema, and remove those of messages that are gone."""
    SCHEMAS.mkdir(parents=True, exist_ok=True)
    texts = schemas()
    for path in SCHEMAS.glob("*.json"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (SCHEMAS / name).write_text(text)


if __name__ == "__main__":
    main()
