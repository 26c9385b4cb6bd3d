"""The number of workers that KEDA asks for, by its documented formula; KEDA itself is not run.

Each trigger gives the horizontal pod autoscaler a metric with an ``AverageValue`` target: ``ceil(metric / target)``. The largest of them
counts, between floor and ceiling (keda.sh/docs, "Scaling Deployments"; Kubernetes, "Horizontal Pod Autoscaling", algorithm details).
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

SCALING = Path(__file__).parents[2] / "infra/kubernetes/scaling.yaml"
Ask = Callable[[Mapping[str, str]], float]
"""A trigger's metadata → its metric."""


def scaled(name: str) -> dict[str, Any]:
    """The spec of a ScaledObject that ships."""
    documents = yaml.safe_load_all(SCALING.read_text())
    found = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "ScaledObject"}
    spec: dict[str, Any] = found[name]
    return spec


def replicas(spec: Mapping[str, Any], ask: Mapping[str, Ask]) -> int:
    """How many workers.

    Args:
        spec: of a ScaledObject.
        ask: how each type of trigger finds its metric.
    """
    wanted = [
        math.ceil(ask[each["type"]](each["metadata"]) / float(_target(each["metadata"]))) for each in spec["triggers"]
    ]
    return min(max(*wanted, spec["minReplicaCount"]), spec["maxReplicaCount"])


def _target(metadata: Mapping[str, str]) -> str:
    assert metadata.get("mode", "QueueLength") == "QueueLength"
    return metadata.get("value") or metadata["targetQueryValue"]
