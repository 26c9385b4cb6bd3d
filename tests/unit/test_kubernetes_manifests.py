"""The manifests of infra/kubernetes: valid by Kubernetes' own schemas and the CRDs', and in step with our code. No cluster is needed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from pydantic_settings import BaseSettings

from longstride.contracts.topology import durable_bindings, job_queues
from longstride.messaging.celery_app import JobSettings
from longstride.messaging.service import DRAIN_S
from longstride.observability.settings import TelemetrySettings
from longstride.policies.remote_settings import RemoteSettings
from longstride.sandbox.kubernetes.pods import model_of
from longstride.sandbox.kubernetes.program import MARK
from longstride.sandbox.kubernetes.settings import KubernetesSettings
from services.connections import Connections
from services.model_worker.settings import ModelWorkerSettings
from services.planner.settings import PlannerSettings
from services.telemetry.settings import RecorderSettings
from services.tool_executor.settings import ToolExecutorSettings
from tests.support.kubernetes_schemas import closed, custom, problems

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra/kubernetes"
SETTINGS: dict[str, type[BaseSettings]] = {
    "planner": PlannerSettings,
    "telemetry": RecorderSettings,
    "model-worker": ModelWorkerSettings,
    "trainer": ModelWorkerSettings,
    "tool-executor": ToolExecutorSettings,
}
SECRET_KEYS = {"database-url", "amqp-url", "s3-access-key", "s3-secret-key", "remote-api-key"}
WORKERS = ("tool-executor", "model-worker")


class Found(NamedTuple):
    """One object of one file."""

    file: str
    document: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}: {self.document['kind']} {self.document['metadata']['name']}"


def read() -> list[Found]:
    files = [path for path in sorted(FOLDER.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    return [
        Found(str(p.relative_to(FOLDER)), each) for p in files for each in yaml.safe_load_all(p.read_text()) if each
    ]


OBJECTS = read()


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each.document["metadata"]["name"]: each.document for each in OBJECTS if each.document["kind"] == kind}


def templates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Pod templates by the name of what makes them."""
    for kind in ("Deployment", "Job"):
        yield from ((name, each["spec"]["template"]) for name, each in of_kind(kind).items())
    yield from ((name, each["spec"]["podTemplate"]) for name, each in of_kind("SandboxTemplate").items())


PODS = dict(templates())
SERVICES = sorted(of_kind("Deployment"))
SANDBOXES = sorted(of_kind("SandboxTemplate"))


# By schema.


@pytest.mark.parametrize("found", OBJECTS, ids=map(str, OBJECTS))
def test_an_object_is_one_that_a_cluster_takes(found: Found) -> None:
    assert problems(found.document) == []


@pytest.mark.parametrize("name", SANDBOXES)
def test_a_sandboxes_pod_is_one_that_a_cluster_takes(name: str) -> None:
    """The CRD's own copy of a pod's spec is left out of our copy of the CRD."""
    metadata = {"name": name, **PODS[name]["metadata"]}
    assert problems({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": PODS[name]["spec"]}) == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", "spec.template.spec.containers.0.imagee"),
        ("NetworkPolicy", "spec.policyType"),
        ("ScaledObject", "spec.maxReplicas"),
        ("ScaledObject", "spec.triggers.0.metadataa"),
        ("SandboxTemplate", "spec.runtimeClassName"),
        ("SandboxWarmPool", "spec.templateRef"),
    ],
)
def test_a_misspelt_field_would_be_found(kind: str, path: str) -> None:
    document = yaml.safe_load(yaml.safe_dump(next(iter(of_kind(kind).values()))))
    *above, last = path.split(".")
    place = document
    for key in above:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = "x"
    assert problems(document) != []


def test_the_crds_are_whole_and_say_where_they_are_from() -> None:
    assert len(custom()) == 5
    for crd in custom().values():
        assert re.fullmatch(r"(kubernetes-sigs/agent-sandbox|kedacore/keda) v\d+\.\d+\.\d+ \S+\.yaml", crd["source"])
        assert crd["licence"] == "Apache-2.0"
        assert closed(crd["openAPIV3Schema"])["properties"]["spec"]["properties"]


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "sandboxes"], ids=["services", "sandboxes"])
def test_a_kustomization_names_every_file_beside_it(folder: Path) -> None:
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(named) == sorted(p.name for p in folder.glob("*.yaml") if p.name != "kustomization.yaml")


def test_names_are_unique() -> None:
    keys = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for _, d in OBJECTS]
    assert len(keys) == len(set(keys))


# In step with the code.


def variables(*classes: type[BaseSettings]) -> set[str]:
    """Every variable that some settings read."""
    names: set[str] = set()
    for each in classes:
        prefix = each.model_config.get("env_prefix", "")
        for name, field in each.model_fields.items():
            choices = getattr(field.validation_alias, "choices", ())
            names |= {f"{prefix}{name}".upper(), *map(str, choices)}
    return names


def set_in(name: str) -> dict[str, dict[str, Any]]:
    """Environment of a service's container: the settings and its own."""
    (container,) = PODS[name]["spec"]["containers"]
    shared = of_kind("ConfigMap")["longstride-settings"]["data"] if container.get("envFrom") else {}
    return {
        **{key: {"value": value} for key, value in shared.items()},
        **{each["name"]: each for each in container["env"]},
    }


@pytest.mark.parametrize("name", SERVICES)
def test_every_variable_is_one_that_the_service_reads(name: str) -> None:
    known = variables(Connections, TelemetrySettings, RemoteSettings, KubernetesSettings, SETTINGS[name])
    assert set(set_in(name)) - known - {"HOME"} == set()


@pytest.mark.parametrize("name", SERVICES)
def test_the_settings_are_ones_that_the_service_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, each in set_in(name).items():
        monkeypatch.setenv(variable, each.get("value", "postgresql://from-a-secret"))
    made = SETTINGS[name]()
    assert Connections().migrate is False, "the job does it"
    assert TelemetrySettings().metrics_port == 9464
    if isinstance(made, ToolExecutorSettings):
        assert made.backend == "kubernetes"


def test_the_executor_claims_from_a_pool_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, each in set_in("tool-executor").items():
        monkeypatch.setenv(variable, each.get("value", ""))
    settings = KubernetesSettings()
    pool = of_kind("SandboxWarmPool")[settings.pool]
    assert pool["metadata"]["namespace"] == settings.namespace
    assert KubernetesSettings.model_fields["pool"].default == settings.pool, "the default is what ships"


@pytest.mark.parametrize("name", [*SERVICES, "migrations"])
def test_secrets_are_by_reference_alone(name: str) -> None:
    referred = {each["valueFrom"]["secretKeyRef"]["key"] for each in set_in(name).values() if "valueFrom" in each}
    assert referred <= SECRET_KEYS
    assert "database-url" in referred
    assert of_kind("Secret") == {}
    for variable, each in set_in(name).items():
        if re.search("KEY|URL|PASSWORD|TOKEN", variable):
            assert "valueFrom" in each, f"{variable} would stand in the file"


def test_the_readme_says_how_to_make_the_secret() -> None:
    told = set(re.findall(r"--from-literal=([a-z0-9-]+)=", (FOLDER / "README.md").read_text()))
    assert told == SECRET_KEYS


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "infra/compose/services.yml").read_text())["services"]
    return services


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_the_image_and_the_command_of_the_compose_stack(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    image = compose()[name]["image"].replace("${LONGSTRIDE_VERSION:-0.1.0}", "0.1.0")
    assert (container["image"], container.get("command")) == (image, compose()[name].get("command"))
    assert set(compose()) == set(SERVICES), "all services are deployed"


@pytest.mark.parametrize("name", ["migrations", "trainer"])
def test_a_command_is_a_module_of_ours(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    python, flag, module, *_ = container["command"]
    assert (python, flag) == ("python", "-m")
    place = ROOT / ("" if module.startswith("services.") else "libs") / module.replace(".", "/")
    assert place.with_suffix(".py").exists() or (place / "__main__.py").exists()


def test_the_executors_image_has_the_client_of_its_backend() -> None:
    assert "'.[mcp,kubernetes]'" in (ROOT / "services/tool_executor/Dockerfile").read_text()


def test_the_images_share_the_layer_of_their_packages() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "services").glob("*/Dockerfile"))]
    layers = {
        re.findall(r"^FROM \$BASE AS packages\n.*?^RUN mkdir[^\n]*", text, re.DOTALL | re.MULTILINE)[0]
        for text in texts
    }
    assert len(texts) > 1
    assert len(layers) == 1


@pytest.mark.parametrize("name", SERVICES)
def test_probes_ask_the_health_endpoint(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", 9464)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    alive = container["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] >= 600, "a broker that is away restarts nobody"


@pytest.mark.parametrize("name", SERVICES)
def test_a_manifest_says_after_how_long_a_service_is_started_again(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    lasts = {
        p: container[p]["periodSeconds"] * container[p]["failureThreshold"] for p in ("startupProbe", "livenessProbe")
    }
    assert lasts == {"startupProbe": 300, "livenessProbe": 600}
    assert "ten minutes of that (at start, five)" in (FOLDER / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_longer_to_end_than_it_takes_to_drain(name: str) -> None:
    longest = max(DRAIN_S, JobSettings.drain_s)
    assert PODS[name]["spec"]["terminationGracePeriodSeconds"] >= longest + 10


# What holds a pod.


@pytest.mark.parametrize("name", sorted(PODS))
def test_no_pod_has_more_freedom_than_it_needs(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert not any("hostPath" in volume for volume in spec.get("volumes", ()))
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= container["resources"].keys()
        assert "memory" in container["resources"]["limits"]


def test_the_api_server_enforces_it_too() -> None:
    for name in ("longstride", "longstride-sandboxes"):
        assert of_kind("Namespace")[name]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", sorted(PODS))
def test_only_the_executor_has_a_token_of_the_api(name: str) -> None:
    spec = PODS[name]["spec"]
    if name == "tool-executor":
        assert spec["serviceAccountName"] in of_kind("ServiceAccount")
    else:
        assert spec["automountServiceAccountToken"] is False
        assert "serviceAccountName" not in spec


NEEDED = {
    ("extensions.agents.x-k8s.io", "sandboxclaims"): {"create", "get", "list", "watch", "patch", "delete"},
    ("extensions.agents.x-k8s.io", "sandboxwarmpools"): {"get"},
    ("extensions.agents.x-k8s.io", "sandboxtemplates"): {"get"},
    ("agents.x-k8s.io", "sandboxes"): {"get"},
    ("", "pods"): {"get"},
    ("", "pods/exec"): {"get", "create"},
    ("coordination.k8s.io", "leases"): {"create", "list", "patch", "delete"},
}
"""What ``sandbox/kubernetes`` asks of the API."""


def test_the_executors_role_is_what_it_asks_and_no_more() -> None:
    role = of_kind("Role")["longstride-tool-executor"]
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == NEEDED
    (cluster_rule,) = of_kind("ClusterRole")["longstride-runtime-classes"]["rules"]
    assert cluster_rule == {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["get"]}


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_a_binding_joins_what_is_there(kind: str) -> None:
    for binding in of_kind(kind).values():
        assert binding["roleRef"]["name"] in of_kind(binding["roleRef"]["kind"])
        (subject,) = binding["subjects"]
        account = of_kind(subject["kind"])[subject["name"]]
        assert account["metadata"]["namespace"] == subject["namespace"]


# Sandboxes.


@pytest.mark.parametrize(("name", "isolation"), [("longstride-gvisor", "gvisor"), ("longstride-kata", "microvm")])
def test_a_template_gives_the_isolation_of_its_runtime(name: str, isolation: str) -> None:
    template = of_kind("SandboxTemplate")[name]
    runtime = of_kind("RuntimeClass")[PODS[name]["spec"]["runtimeClassName"]]
    model = model_of("pool", template["spec"], runtime["handler"])
    assert model.isolation == {"process", isolation}
    assert PODS[name]["metadata"]["labels"]["longstride.dev/sandbox"] == isolation


@pytest.mark.parametrize("name", SANDBOXES)
def test_a_sandbox_cannot_change_what_its_porter_lays(name: str) -> None:
    code, porter = PODS[name]["spec"]["containers"]
    assert (code["name"], porter["name"]) == ("sandbox", "porter")
    mounts = [{m["mountPath"]: m.get("readOnly", False) for m in each["volumeMounts"]} for each in (code, porter)]
    assert (mounts[0]["/run/longstride"], mounts[1]["/run/longstride"]) == (True, False)
    assert mounts[1].keys() == {"/workspace", "/run/longstride"}
    assert not PODS[name]["spec"].get("shareProcessNamespace")
    assert {each["name"] for each in code["env"]} == {MARK}


@pytest.mark.parametrize("name", SANDBOXES)
def test_what_a_sandbox_may_write_is_bounded_by_the_kernel(name: str) -> None:
    for volume in PODS[name]["spec"]["volumes"]:
        assert volume["emptyDir"]["medium"] == "Memory"
        assert volume["emptyDir"]["sizeLimit"]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """A LabelSelector of ``matchLabels``; an empty one selects all."""
    assert selector.keys() <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


@pytest.mark.parametrize("name", SANDBOXES)
def test_a_sandbox_has_no_network_at_all(name: str) -> None:
    template = of_kind("SandboxTemplate")[name]
    namespace = template["metadata"]["namespace"]
    policies = [p for p in of_kind("NetworkPolicy").values() if p["metadata"]["namespace"] == namespace]
    chosen = [p for p in policies if selects(p["spec"]["podSelector"], PODS[name]["metadata"]["labels"])]
    assert chosen
    for policy in chosen:
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        assert not policy["spec"].get("ingress")
        assert not policy["spec"].get("egress")
    assert template["spec"]["networkPolicyManagement"] == "Unmanaged", "the controller's own policy allows the internet"


def test_a_pool_makes_pods_of_a_template_that_is_there() -> None:
    for pool in of_kind("SandboxWarmPool").values():
        assert pool["spec"]["sandboxTemplateRef"]["name"] in of_kind("SandboxTemplate")


def test_nothing_talks_to_a_service_but_prometheus() -> None:
    (policy,) = [p for p in of_kind("NetworkPolicy").values() if p["metadata"]["namespace"] == "longstride"]
    assert all(selects(policy["spec"]["podSelector"], PODS[name]["metadata"]["labels"]) for name in SERVICES)
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": 9464, "protocol": "TCP"}]


# Disruption and scale.


@pytest.mark.parametrize("name", SERVICES)
def test_selectors_choose_their_own_pods_alone(name: str) -> None:
    chosen = [
        each
        for each in PODS
        if selects(of_kind("Deployment")[name]["spec"]["selector"], PODS[each]["metadata"]["labels"])
    ]
    assert chosen == [name]


def test_a_budget_is_of_pods_that_are_there_and_lets_nodes_be_drained() -> None:
    budgets = of_kind("PodDisruptionBudget")
    assert set(budgets) == {"planner", *WORKERS}
    for name, budget in budgets.items():
        assert selects(budget["spec"]["selector"], PODS[name]["metadata"]["labels"])
        if "minAvailable" in budget["spec"]:
            assert budget["spec"]["minAvailable"] < of_kind("Deployment")[name]["spec"]["replicas"]


@pytest.mark.parametrize("name", WORKERS)
def test_a_scaled_object_is_of_a_deployment_that_leaves_the_number_to_it(name: str) -> None:
    scaled = of_kind("ScaledObject")[name]["spec"]
    target = of_kind(scaled["scaleTargetRef"]["kind"])[scaled["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"], "each apply would undo what KEDA did"
    assert 0 < scaled["minReplicaCount"] < scaled["maxReplicaCount"]
    assert scaled["minReplicaCount"] <= scaled["fallback"]["replicas"] <= scaled["maxReplicaCount"]


QUEUES = {
    "tool-executor": {"longstride.execute"},
    "model-worker": {"longstride.generate.fast", "longstride.generate.deep"},
}


@pytest.mark.parametrize("name", WORKERS)
def test_triggers_follow_queues_that_the_worker_takes_from(name: str) -> None:
    triggers = of_kind("ScaledObject")[name]["spec"]["triggers"]
    queues = {each["metadata"]["queueName"] for each in triggers if each["type"] == "rabbitmq"}
    assert queues == QUEUES[name]
    assert queues <= {*job_queues(), *(queue for queue, _ in durable_bindings())}


@pytest.mark.parametrize("name", WORKERS)
def test_a_triggers_target_is_what_one_worker_does_at_a_time(name: str) -> None:
    slots = set_in(name)[f"LONGSTRIDE_{name.upper().replace('-', '_')}_SLOTS"]["value"]
    for trigger in of_kind("ScaledObject")[name]["spec"]["triggers"]:
        told = trigger["metadata"]
        assert told.get("value", told.get("targetQueryValue")) == slots


@pytest.mark.parametrize("name", WORKERS)
def test_triggers_authenticate_by_the_secret(name: str) -> None:
    references = of_kind("TriggerAuthentication")["backlog"]["spec"]["secretTargetRef"]
    assert {each["key"] for each in references} <= SECRET_KEYS
    given = {each["parameter"] for each in references}
    for trigger in of_kind("ScaledObject")[name]["spec"]["triggers"]:
        assert trigger["authenticationRef"]["name"] == "backlog"
        assert {"rabbitmq": "host", "postgresql": "connection"}[trigger["type"]] in given


def test_executors_at_their_ceiling_fit_into_the_sandboxes_quota() -> None:
    """Each process of an executor holds a pod that waits, and one that works."""
    most = of_kind("ScaledObject")["tool-executor"]["spec"]["maxReplicaCount"]
    slots = int(set_in("tool-executor")["LONGSTRIDE_TOOL_EXECUTOR_SLOTS"]["value"])
    waiting = sum(pool["spec"]["replicas"] for pool in of_kind("SandboxWarmPool").values())
    assert int(of_kind("ResourceQuota")["sandboxes"]["spec"]["hard"]["pods"]) >= most * slots + waiting
