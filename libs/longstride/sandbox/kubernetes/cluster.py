"""What is asked of a cluster: claims through the agent-sandbox SDK, pods and commands in them through Kubernetes' own client."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from longstride.sandbox.errors import SandboxFailed, SandboxUnavailable
from longstride.sandbox.kubernetes.channel import Channel
from longstride.sandbox.kubernetes.pods import CODE, PodModel, model_of

EXTENSIONS, VERSION = "extensions.agents.x-k8s.io", "v1beta1"
"""The API group of claims, pools and templates."""
TIMEOUT_S = (5, 30)
"""Of one request: to connect, and between two bytes of an answer."""
INSTALL = "the kubernetes backend needs its client: pip install 'longstride[kubernetes]'"
NO_CLUSTER = "no cluster to ask: this is no pod with a service account, and no kubeconfig can be used (KUBECONFIG, else ~/.kube/config): {error}"
NO_CRDS = (
    "the cluster has no {plural}.{group}: install agent-sandbox with its extensions (github.com/kubernetes-sigs/agent-sandbox), "
    "0.5 or newer"
)
NO_OBJECT = "there is no {plural} {name!r} in namespace {namespace!r}: apply infra/kubernetes/sandboxes, or set LONGSTRIDE_KUBERNETES_NAMESPACE and _POOL"
FORBIDDEN = "this identity may not do it: bind the role in infra/kubernetes/sandboxes/access.yaml to it"


class Cluster:
    """One namespace of one cluster. May be called from many threads."""

    def __init__(self, namespace: str, configuration: Any) -> None:
        """``configuration``: a ``kubernetes.client.Configuration``."""
        from k8s_agent_sandbox.k8s_helper import K8sHelper
        from kubernetes import client

        self.namespace = namespace
        self._configuration = configuration
        self._api = api = _patient(client.ApiClient(configuration))
        self.leases = client.CoordinationV1Api(api)
        self._claims = K8sHelper(api_client=api)
        self._custom, self._core, self._node = (
            self._claims.custom_objects_api,
            self._claims.core_v1_api,
            client.NodeV1Api(api),
        )

    @classmethod
    def find(cls, namespace: str) -> "Cluster":
        """The pod's own, else that of the kubeconfig.

        Raises:
            SandboxUnavailable: there is none, or no client for it.
        """
        if importlib.util.find_spec("k8s_agent_sandbox") is None:
            raise SandboxUnavailable(INSTALL)
        from kubernetes import client, config

        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            try:
                config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
            except (config.ConfigException, OSError) as error:
                raise SandboxUnavailable(NO_CLUSTER.format(error=error)) from error
        return cls(namespace, configuration)

    def close(self) -> None:
        """Hang up."""
        self._api.rest_client.pool_manager.clear()

    def model(self, pool: str) -> PodModel:
        """What a warm pool's pods are made of.

        Raises:
            SandboxUnavailable: there is no such pool, or nothing could be isolated in its pods.
            SandboxFailed: the API does not answer.
        """
        held = self._object("sandboxwarmpools", pool)
        template = self._object("sandboxtemplates", held["spec"]["sandboxTemplateRef"]["name"])["spec"]
        name = template["podTemplate"]["spec"].get("runtimeClassName")
        return model_of(pool, template, self._handler(name) if name else None)

    def claim(self, name: str, pool: str, labels: Mapping[str, str], seconds: int, ready_s: int) -> Any:
        """A pod of a pool, for this name alone.

        Args:
            name: new.
            pool: a warm pool's.
            labels: of the claim.
            seconds: until the cluster removes it by itself.
            ready_s: to wait.

        Raises:
            SandboxFailed: there is none; the claim is gone again.
        """
        from k8s_agent_sandbox.utils import construct_sandbox_claim_lifecycle_spec

        with answered(f"no sandbox could be had from warm pool {pool}"):
            lifecycle = construct_sandbox_claim_lifecycle_spec(seconds)
            made = self._claims.create_sandbox_claim(
                name, pool, self.namespace, labels=dict(labels), lifecycle=lifecycle
            )
            try:
                version = made["metadata"].get("resourceVersion")
                sandbox = self._claims.wait_for_claim_ready(name, self.namespace, ready_s, version)
                return self.pod(self._pod_name(sandbox))
            except BaseException:
                self._claims.delete_sandbox_claim(name, self.namespace)
                raise

    def pod(self, name: str) -> Any:
        """A ``V1Pod``.

        Raises:
            SandboxFailed: it is gone, or the API does not answer.
        """
        with answered(f"pod {name} cannot be looked at"):
            return self._core.read_namespaced_pod(name, self.namespace)

    def prolong(self, claim: str, until: datetime) -> None:
        """Let the cluster keep a claim until then.

        Raises:
            SandboxFailed: it is gone, or the API does not answer.
        """
        with answered(f"claim {claim} cannot be prolonged"):
            time = until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._claims.patch_sandbox_claim(claim, self.namespace, {"spec": {"lifecycle": {"shutdownTime": time}}})

    def release(self, claim: str) -> None:
        """Remove a claim, and with it its pod; one that is gone is no error.

        Raises:
            SandboxFailed: the API does not answer.
        """
        with answered(f"claim {claim} could not be removed, and the cluster does so when it expires"):
            self._claims.delete_sandbox_claim(claim, self.namespace)

    def claims(self, label: str) -> dict[str, str]:
        """Claims that have a label, by name, with its value.

        Raises:
            SandboxFailed: the API does not answer.
        """
        with answered("claims cannot be listed"):
            answer: Any = self._custom.list_namespaced_custom_object(
                EXTENSIONS, VERSION, self.namespace, "sandboxclaims", label_selector=label
            )
            return {item["metadata"]["name"]: item["metadata"]["labels"][label] for item in answer["items"]}

    def execute(self, pod: str, argv: Sequence[str], container: str = CODE) -> Channel:
        """Start a command in a pod; nothing has been sent to it yet.

        Raises:
            SandboxFailed: it could not be started.
        """
        from kubernetes.stream.ws_client import create_websocket, get_websocket_url

        wanted = [(name, "true") for name in ("stdin", "stdout", "stderr")]
        query = [("container", container), *(("command", word) for word in argv), *wanted]
        url = f"{self._configuration.host}/api/v1/namespaces/{self.namespace}/pods/{pod}/exec"
        headers: dict[str, str] = {}
        self._api.update_params_for_auth(headers, [], ["BearerToken"])
        with answered(f"no command could be started in pod {pod}"), _handshake_limited():
            return Channel(create_websocket(self._configuration, get_websocket_url(url, query), headers))

    def _pod_name(self, sandbox: str) -> str:
        """A sandbox's pod has its name, except for those of older controllers."""
        from k8s_agent_sandbox.constants import POD_NAME_ANNOTATION

        found = self._claims.get_sandbox(sandbox, self.namespace)
        if found is None:
            raise SandboxFailed(f"sandbox {sandbox} was gone as soon as it was ready")
        return str((found["metadata"].get("annotations") or {}).get(POD_NAME_ANNOTATION) or sandbox)

    def _object(self, plural: str, name: str) -> Any:
        from kubernetes.client import ApiException

        with answered(f"{plural} {name} cannot be read"):
            try:
                return self._custom.get_namespaced_custom_object(EXTENSIONS, VERSION, self.namespace, plural, name)
            except ApiException as error:
                if error.status != 404:
                    raise
                # For a kind that it does not know, the API's answer is plain text.
                absent = NO_OBJECT if _status_in(error.body) else NO_CRDS
                words = {
                    "plural": plural,
                    "name": name,
                    "namespace": self.namespace,
                    "group": EXTENSIONS,
                }
                raise SandboxUnavailable(absent.format(**words)) from error

    def _handler(self, runtime_class: str) -> str:
        from kubernetes.client import ApiException

        with answered(f"RuntimeClass {runtime_class} cannot be read"):
            try:
                return str(self._node.read_runtime_class(runtime_class).handler)
            except ApiException as error:
                if error.status != 404:
                    raise
                raise SandboxUnavailable(
                    f"the cluster has no RuntimeClass {runtime_class!r}: install that runtime on its nodes, or use another template"
                ) from error


@contextmanager
def answered(what: str) -> Iterator[None]:
    """Turn what can be tried again into ``SandboxFailed``.

    Args:
        what: did not succeed then.

    Raises:
        SandboxFailed: the API refused, did not answer, or gave up.
    """
    from k8s_agent_sandbox.exceptions import SandboxError as AgentSandboxError
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError
    from websocket import WebSocketBadStatusException, WebSocketException

    try:
        yield
    except ApiException as error:
        raise SandboxFailed(f"{what}: {_said(error.status, error.reason, error.body, error.headers)}") from error
    except WebSocketBadStatusException as error:
        said = _said(error.status_code, "no websocket was opened", error.resp_body, error.resp_headers)
        raise SandboxFailed(f"{what}: {said}") from error
    except (AgentSandboxError, HTTPError, WebSocketException, TimeoutError, OSError) as error:
        raise SandboxFailed(f"{what}: {error}") from error


def _said(code: int, reason: str | None, body: str | bytes | None, headers: Mapping[str, str] | None) -> str:
    """By the API, or on the way to it."""
    said = _status_in(body).get("message") or reason or "no reason given"
    advice = f" ({FORBIDDEN})" if code == 403 else ""
    wait = (headers or {}).get("Retry-After") if code == 429 else None
    return f"{code}, {said}{advice}" + (f", again in {wait} s" if wait else "")


def _status_in(body: str | bytes | None) -> dict[str, Any]:
    """The ``Status`` in an answer, if it is one."""
    try:
        status = json.loads(body or "")
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def _patient(api: Any) -> Any:
    """A client whose requests end; without a time of their own they would wait for ever."""
    plain: Callable[..., Any] = api.request

    def request(method: str, url: str, _request_timeout: Any = None, **rest: Any) -> Any:
        return plain(method, url, _request_timeout=_request_timeout or TIMEOUT_S, **rest)

    api.request = partial(request)
    return api


@contextmanager
def _handshake_limited() -> Iterator[None]:
    """Of a websocket, for which the client takes no time of its own."""
    import websocket

    before = websocket.getdefaulttimeout()
    websocket.setdefaulttimeout(TIMEOUT_S[1])
    try:
        yield
    finally:
        websocket.setdefaulttimeout(before)
