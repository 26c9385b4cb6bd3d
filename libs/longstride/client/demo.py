"""The demo's tasks: real files that ship with the repository."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from longstride.client.errors import UsageProblem
from longstride.contracts.envelope import explain
from longstride.contracts.v1.commands import SubmitTask

EXAMPLES = Path(__file__).parents[3] / "examples" / "demo.json"


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A submission, and where its input files lie on this machine."""

    fields: dict[str, Any]
    """Of ``SubmitTask``, without its inputs."""
    inputs: tuple[tuple[Path, str], ...]
    """(file, path in the workspace)."""


def load(file: Path = EXAMPLES) -> list[DemoTask]:
    """Read tasks: a JSON list of ``SubmitTask`` bodies whose inputs are ``{"path", "file"}``, the file beside the list.

    Raises:
        UsageProblem: the list is missing or not one.
    """
    try:
        raw = json.loads(file.read_text())
        return [_task(body, file.parent) for body in raw]
    except OSError as error:
        raise UsageProblem(
            f"{file} cannot be read ({error.strerror}); run the demo from a clone of the repository"
        ) from error
    except ValidationError as error:
        raise UsageProblem(f"{file}: {explain(error, 'it')}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageProblem(f"{file} is not a list of tasks: {error}") from error


def _task(body: dict[str, Any], folder: Path) -> DemoTask:
    fields = {name: value for name, value in body.items() if name != "inputs"}
    SubmitTask.model_validate(fields)
    inputs = tuple((folder / entry.get("file", entry["path"]), entry["path"]) for entry in body.get("inputs", []))
    return DemoTask(fields, inputs)
