"""Whether an object is one that a cluster would take: Kubernetes' own JSON schemas, and the CRDs' for what is not Kubernetes' own."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

CRDS = Path(__file__).with_name("kubernetes_crds")
RELEASE = "1.35"
"""Of Kubernetes."""


@cache
def custom() -> dict[tuple[str, str], dict[str, Any]]:
    """(apiVersion, kind) → what is known of it."""
    found = [json.loads(path.read_text()) for path in sorted(CRDS.glob("*.json"))]
    return {(f"{crd['group']}/{crd['version']}", crd["kind"]): crd for crd in found}


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object; unknown fields are wrong, too."""
    crd = custom().get((document["apiVersion"], document["kind"]))
    if crd is None:
        try:
            kubernetes_validate.validate(document, RELEASE, strict=True)
        except kubernetes_validate.ValidationError as error:
            return [f"{'.'.join(map(str, error.path))}: {error.message}"]
        return []
    schema = closed(crd["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in found]


def closed(schema: Any) -> Any:
    """A structural schema as the API server reads it strictly: a field that it does not name is refused."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: closed(value) for key, value in schema.items()}
    if copy.get("x-kubernetes-int-or-string"):
        copy.pop("type", None)
    if "properties" in copy and copy.get("type") == "object" and not copy.get("x-kubernetes-preserve-unknown-fields"):
        copy.setdefault("additionalProperties", False)
    return copy
