"""The Kubernetes backend against an API server that answers as the documented one does; see ``tests/support/kubernetes_api.py``."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Isolation, SandboxLimits
from longstride.sandbox.backends import installed, make
from longstride.sandbox.base import Command, Spec, Volume
from longstride.sandbox.demand import Bounds
from longstride.sandbox.errors import IsolationUnavailable, SandboxFailed, SandboxUnavailable, WorkspaceUnusable
from longstride.sandbox.kubernetes import cell
from longstride.sandbox.kubernetes.backend import KubernetesSandbox
from longstride.sandbox.kubernetes.presence import EXECUTOR
from longstride.sandbox.pool import Pool
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools
from tests.support.eventually import eventually
from tests.support.kubernetes_api import EXTENSIONS, LEASES, PODS, Cluster, Pod, Wire, failure, long_ago
from tests.support.talker import Talker
from tests.support.tls_front import TlsFront

SANDBOXES = Path(__file__).parents[2] / "infra/kubernetes/sandboxes"
SMALL = SandboxLimits(wall_s=20, cpu_s=10, memory_mb=64, disk_mb=2, files=50, cpus=0.5)
CLAIMS = f"{EXTENSIONS}/sandboxclaims"


def template(name: str = "gvisor") -> dict[str, Any]:
    """The one that ships."""
    documents = yaml.safe_load_all((SANDBOXES / f"{name}.yaml").read_text())
    found: dict[str, Any] = next(each for each in documents if each["kind"] == "SandboxTemplate")
    return found


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    api = Cluster(tmp_path / "cluster", template())
    api.root.mkdir()
    add_runtime(api, "gvisor", "runsc")
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig()))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in {"NAMESPACE": "sandboxes", "POOL": "pool", "READY_S": "2"}.items():
        monkeypatch.setenv(f"LONGSTRIDE_KUBERNETES_{name}", value)
    yield api
    api.close()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where another user could reach it: the backend asks for that as root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "scratch"


@pytest.fixture
def backend(cluster: Cluster, scratch: Path) -> Iterator[KubernetesSandbox]:
    made = make("kubernetes", scratch)
    assert isinstance(made, KubernetesSandbox)
    cluster.asked.clear()
    yield made
    made.close()


@pytest.fixture
def volume(backend: KubernetesSandbox) -> Volume:
    return backend.volumes.create(SMALL)


def add_runtime(cluster: Cluster, name: str, handler: str) -> None:
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    cluster.objects["/apis/node.k8s.io/v1/runtimeclasses"][name] = {
        **kind,
        "metadata": {"name": name},
        "handler": handler,
    }


def command(volume: Volume, limits: SandboxLimits = SMALL, **given: Any) -> Command:
    return Command(("python3", "-c", "..."), volume, limits, **given)


def playing(*steps: Callable[[Wire], object], code: int | None = 0) -> Callable[[Wire], int | None]:
    def play(wire: Wire) -> int | None:
        for step in steps:
            step(wire)
        return code

    return play


def until_killed(wire: Wire) -> None:
    assert wire.pod.killed.wait(30)


def test_a_sandbox_lives_for_one_command(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    (volume.path / "in.txt").write_text("there")

    def work(wire: Wire) -> int:
        pod = wire.pod
        assert (pod.workspace / "in.txt").read_text() == "there"
        assert (pod.root / "run/longstride/checks/x").read_bytes() == b"hidden"
        (pod.workspace / "in.txt").unlink()
        (pod.workspace / "made").mkdir()
        (pod.workspace / "made/out.txt").write_text("result")
        wire.out(b"said \xff")
        wire.err(b"complained")
        return 3

    cluster.on_run = work
    sandbox = backend.create(Spec(SMALL))
    (claim,) = cluster.claims.values()
    assert claim["spec"]["warmPoolRef"] == {"name": "pool"}
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    assert list(cluster.leases) == [claim["metadata"]["labels"][EXECUTOR]]
    assert sandbox.alive
    sandbox.put(volume)
    execution = sandbox.exec(command(volume, files={"checks/x": b"hidden"}))
    assert (execution.status, execution.exit_code) == ("failed", 3)
    assert (execution.stdout, execution.stderr) == (b"said \xff", b"complained")
    assert (execution.usage.cpu_ms, execution.usage.max_memory_mb) == (250, 2)
    sandbox.collect(volume)
    assert [path.name for path in volume.path.iterdir()] == ["made"]
    assert (volume.path / "made/out.txt").read_text() == "result"
    sandbox.destroy()
    assert cluster.claims == {}
    assert not sandbox.alive
    sandbox.destroy()
    assert [path for method, path in cluster.asked if method == "DELETE"] == [f"{CLAIMS}/{claim['metadata']['name']}"]


def test_a_command_gets_its_limits_and_nothing_of_the_pods_environment(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume
) -> None:
    asked: list[dict[str, Any]] = []
    cluster.on_run = playing(lambda wire: asked.append(wire.request))
    execution = backend.run(command(volume, env={"WHO": "me"}))
    assert execution.status == "ok"
    (request,) = asked
    assert request["argv"] == ["python3", "-c", "..."]
    assert (request["env"]["WHO"], request["env"]["HOME"], "KUBERNETES_SERVICE_HOST" in request["env"]) == (
        "me",
        "/tmp",
        False,
    )
    mebibyte = 1 << 20
    assert request["rlimits"] == {
        **{"RLIMIT_CORE": 0, "RLIMIT_NOFILE": 1024, "RLIMIT_CPU": 11, "RLIMIT_NPROC": 64},
        **{"RLIMIT_FSIZE": 2 * mebibyte, "RLIMIT_DATA": 64 * mebibyte},
    }


@pytest.mark.parametrize(
    ("env", "seen"),
    [
        ({}, "/usr/local/bin:/usr/bin:/bin"),
        ({"PATH": ""}, "/usr/local/bin:/usr/bin:/bin"),
        ({"PATH": "/opt/nothing:"}, "/opt/nothing:/usr/local/bin:/usr/bin:/bin"),
    ],
)
def test_a_commands_path_never_hides_the_pods_own(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume, env: dict[str, str], seen: str
) -> None:
    asked: list[dict[str, Any]] = []
    cluster.on_run = playing(lambda wire: asked.append(wire.request))
    backend.run(command(volume, env=env))
    assert asked[0]["env"]["PATH"] == seen


def test_a_program_that_is_to_be_talked_with_is_refused(backend: KubernetesSandbox, volume: Volume) -> None:
    with pytest.raises(IsolationUnavailable, match="talks with its program while it runs, and the kubernetes backend"):
        backend.run(command(volume), dialogue=Talker())


def test_output_keeps_its_head_and_tail(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    cluster.on_run = playing(
        *[lambda wire: wire.out(b"a" * 50_000) for _ in range(20)], lambda wire: wire.out(b"the end")
    )
    execution = backend.run(command(volume, SMALL.model_copy(update={"output_bytes": 1000})))
    assert execution.written == 1_000_007
    assert execution.stdout.startswith(b"aaaa")
    assert execution.stdout.endswith(b"the end")
    assert b"[999507 bytes of output were dropped here]" in execution.stdout
    assert execution.status == "ok"


def endless(wire: Wire) -> None:
    while not wire.pod.killed.is_set():
        wire.out(b"x" * 60_000)


@pytest.mark.parametrize(
    ("changed", "step", "status", "limit"),
    [
        ({"wall_s": 0.3}, until_killed, "timeout", "wall_s=0.3"),
        ({"output_mb": 1}, endless, "limit", "output_mb=1"),
    ],
)
def test_what_goes_too_far_is_killed(
    cluster: Cluster,
    backend: KubernetesSandbox,
    volume: Volume,
    changed: dict[str, Any],
    step: Callable[[Wire], None],
    status: str,
    limit: str,
) -> None:
    pods: list[Pod] = []
    cluster.on_run = playing(lambda wire: pods.append(wire.pod), step, code=137)
    execution = backend.run(command(volume, SMALL.model_copy(update=changed)))
    assert (execution.status, execution.limit, execution.exit_code) == (status, limit, None)
    assert [pod.signals for pod in pods] == [["SIGKILL"]]
    assert cluster.claims == {}


def test_a_cancelled_command_is_killed(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    cancelled = threading.Event()
    cluster.on_run = playing(lambda wire: cancelled.set(), until_killed, code=137)
    assert backend.run(command(volume), cancelled).killed


def counting(**counters: Any) -> Callable[[Wire], None]:
    return lambda wire: wire.pod.counters.update(counters)


@pytest.mark.parametrize(
    ("counters", "code", "limit"),
    [
        ({"out_of_memory": 1}, 137, "memory_mb=64"),
        ({"cpu_s": 10.1}, 137, "cpu_s=10"),
        ({}, 152, "cpu_s=10"),
        ({}, 153, "disk_mb=2"),
        ({"full": True}, 1, "disk_mb=2"),
        ({"bytes": 3 << 20}, 1, "disk_mb=2"),
        ({"entries": 51}, 1, "files=50"),
        ({"no_inodes": True}, 1, "files=50"),
    ],
)
def test_a_failure_names_the_limit_that_explains_it(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume, counters: dict[str, Any], code: int, limit: str
) -> None:
    cluster.on_run = playing(counting(**counters), code=code)
    execution = backend.run(command(volume))
    assert (execution.status, execution.limit, execution.exit_code) == ("limit", limit, code)


@pytest.mark.parametrize("code", [137, None])
def test_a_container_that_ran_out_of_memory_is_known_by_its_status(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume, code: int | None
) -> None:
    """Its whole group is killed, and nothing in it answers any more."""

    def run_out(wire: Wire) -> None:
        wire.pod.terminated("OOMKilled", 137)
        wire.pod.left += [125, 125]
        if code is None:
            wire.drop()

    cluster.on_run = playing(run_out, code=code)
    (volume.path / "kept.txt").write_text("kept")
    execution = backend.run(command(volume))
    assert (execution.status, execution.limit) == ("limit", "memory_mb=64")
    assert (volume.path / "kept.txt").read_text() == "kept"


def test_a_connection_lost_in_the_middle_is_for_another_try(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume
) -> None:
    cluster.on_run = playing(lambda wire: wire.out(b"half"), Wire.drop, code=None)
    with pytest.raises(SandboxFailed, match=r"command's end in pod pool-1 is not known: the connection was lost"):
        backend.run(command(volume))
    assert cluster.claims == {}


def test_an_error_of_the_runtime_is_told(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    told = {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": "container is in unknown state"}
    cluster.on_run = playing(lambda wire: wire.end(told), code=None)
    with pytest.raises(SandboxFailed, match="container is in unknown state"):
        backend.run(command(volume))


def test_processes_that_do_not_end_are_no_success(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    cluster.on_run = playing(lambda wire: wire.pod.left.append(125))
    with pytest.raises(SandboxFailed, match="processes of the command do not end"):
        backend.run(command(volume))


def test_pausing_stops_the_clock_too(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    sandbox = backend.create(Spec(SMALL))
    sandbox.put(volume)
    paused, go_on = threading.Event(), threading.Event()

    def work(wire: Wire) -> int:
        paused.set()
        assert go_on.wait(20)
        return 0

    cluster.on_run = work
    done: list[Any] = []
    brief = SMALL.model_copy(update={"wall_s": 1.0})
    worker = threading.Thread(target=lambda: done.append(sandbox.exec(command(volume, brief))))
    worker.start()
    assert paused.wait(20)
    sandbox.pause()
    assert not threading.Event().wait(1.2), "longer than wall_s"
    sandbox.resume()
    go_on.set()
    worker.join(20)
    (pod,) = [pod for pod in cluster.pods.values() if pod.signals]
    assert (pod.signals, done[0].status) == (["SIGSTOP", "SIGCONT"], "ok")
    assert sandbox.stats().memory_bytes == 1 << 20
    sandbox.destroy()


def test_a_long_command_puts_the_clusters_own_clock_off(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume
) -> None:
    sandbox = backend.create(Spec(SMALL))
    (claim,) = cluster.claims.values()
    before = claim["spec"]["lifecycle"]["shutdownTime"]
    sandbox.put(volume)
    cluster.on_run = playing()
    sandbox.exec(command(volume, SMALL.model_copy(update={"wall_s": 7200.0})))
    assert claim["spec"]["lifecycle"]["shutdownTime"] > before
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete", "what was not changed stays"
    sandbox.destroy()


@pytest.mark.parametrize(
    ("code", "failure", "said"),
    [
        (
            124,
            WorkspaceUnusable,
            "does not fit into the pods of pool pool, which hold 256 MiB and a page for each file",
        ),
        (
            125,
            SandboxFailed,
            r"pod pool-1 did not do what it was asked \(exit code 125\): \[Errno 5\] Input/output error",
        ),
        (137, SandboxFailed, r"\(exit code 137\)"),
    ],
)
def test_a_porter_that_ends_while_it_is_spoken_to_says_why(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume, code: int, failure: type[Exception], said: str
) -> None:
    (volume.path / "big").write_bytes(bytes(3 << 20))
    sandbox = backend.create(Spec(SMALL))
    cluster.pods["pool-1"].refusals.append((b"Traceback\n[Errno 5] Input/output error\n", code))
    with pytest.raises(failure, match=said):
        sandbox.put(volume)
    sandbox.destroy()


def test_counters_that_are_none_are_not_believed(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    cluster.on_run = playing(counting(cpu_s="many"))
    with pytest.raises(SandboxFailed, match="pod pool-1 told no counters"):
        backend.run(command(volume))


def test_a_pool_above_it_uses_each_pod_once_and_keeps_none(cluster: Cluster, scratch: Path) -> None:
    pool = Pool(make("kubernetes", scratch), Bounds(floor=1, ceiling=1))
    used: list[str] = []
    cluster.on_run = playing(lambda wire: used.append(wire.pod.name))
    volume = pool.volumes.create(SMALL)
    for _ in range(3):
        eventually(lambda: pool.level.ready == 1)
        (waiting,) = cluster.pods
        assert pool.run(command(volume)).status == "ok"
        assert used[-1] == waiting, "the one that waited"
    assert len(set(used)) == 3
    pool.close()
    assert (cluster.claims, cluster.leases) == ({}, {})


def test_a_pod_that_died_while_it_waited_is_replaced(cluster: Cluster, scratch: Path) -> None:
    pool = Pool(make("kubernetes", scratch), Bounds(floor=1, ceiling=1))
    cluster.on_run = playing()
    eventually(lambda: pool.level.ready == 1)
    (dead,) = cluster.pods.values()
    dead.document["status"]["phase"] = "Failed"
    assert pool.run(command(pool.volumes.create(SMALL))).status == "ok"
    assert dead.name not in cluster.pods
    pool.close()


# What a pod sends back.


def test_a_workspace_beyond_its_limits_comes_down_as_one(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume
) -> None:
    """So that the commit refuses it with the sentence that it always has."""

    def fill(wire: Wire) -> None:
        with (wire.pod.workspace / "sparse").open("wb") as file:
            file.truncate(1 << 40)

    cluster.on_run = playing(fill)
    backend.run(command(volume))
    assert (volume.path / "sparse").stat().st_size > 2 << 20
    assert (volume.path / "sparse").stat().st_blocks == 0


def test_what_is_no_parcel_leaves_the_volume_as_it_was(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    (volume.path / "before").write_text("as it was")
    sandbox = backend.create(Spec(SMALL))
    sandbox.put(volume)
    cluster.on_run = playing()
    sandbox.exec(command(volume))
    line = '{"kind":"file","path":"../escaped","mode":420,"size":0,"mtime_ns":0}'
    monkeypatch.setattr(cell, "LOADER", f"print({line!r})")
    monkeypatch.setattr(cell, "ARGV", ("python3", "-c", cell.LOADER))
    with pytest.raises(
        SandboxFailed, match=r"what pod pool-1 sent is no workspace: the path '../escaped' leads elsewhere"
    ):
        sandbox.collect(volume)
    assert [path.name for path in volume.path.iterdir()] == ["before"]
    assert not (volume.path.parent / "escaped").exists()
    sandbox.destroy()


def test_a_directory_that_may_not_be_written_comes_back_as_it_is(
    cluster: Cluster, backend: KubernetesSandbox, volume: Volume
) -> None:
    def close(wire: Wire) -> None:
        folder = wire.pod.workspace / "closed"
        folder.mkdir()
        (folder / "file").write_text("inside")
        folder.chmod(0o555)

    cluster.on_run = playing(close)
    backend.run(command(volume))
    assert (volume.path / "closed").stat().st_mode & 0o777 == 0o555
    assert (volume.path / "closed/file").read_text() == "inside"


def act(backend: KubernetesSandbox, isolation: Isolation, command_line: str = "true") -> ActionExecuted:
    """One call of an agent's, through the executor."""
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, backend.volumes)
    executor = Executor(backend, workspaces, artifacts, builtin_tools())
    action = Action.model_validate({"tool": "shell", "arguments": {"command": command_line}})
    asked = ExecuteAction(
        step=1,
        action=action,
        tools=(),
        workspace=None,
        inputs=(InputFile(path="in.txt", text="given"),),
        limits=SMALL,
        isolation=isolation,
    )
    try:
        return executor.execute(asked, task_id="task", session_id="session")
    finally:
        workspaces.close()


def test_an_agents_call_goes_through_a_pod_and_its_workspace_is_kept(
    cluster: Cluster, backend: KubernetesSandbox
) -> None:
    def work(wire: Wire) -> int:
        assert (wire.pod.workspace / "in.txt").read_text() == "given"
        (wire.pod.workspace / "out.txt").write_text("made")
        wire.out(b"done\n")
        return 0

    cluster.on_run = work
    answer = act(backend, "gvisor")
    assert answer.observation is not None
    assert (answer.observation.status, answer.error) == ("ok", None)
    assert "done" in answer.observation.text
    assert answer.workspace is not None


def test_a_workspace_that_grew_too_large_is_an_observation(cluster: Cluster, backend: KubernetesSandbox) -> None:
    def fill(wire: Wire) -> None:
        for number in range(60):
            (wire.pod.workspace / f"{number}").touch()

    cluster.on_run = playing(fill)
    answer = act(backend, "gvisor")
    assert answer.observation is not None
    assert answer.observation.status == "limit"
    assert "more than files=50 entries. The workspace is as it was before this call." in answer.observation.text


def test_a_task_that_needs_another_boundary_is_refused_with_a_sentence(
    cluster: Cluster, backend: KubernetesSandbox
) -> None:
    answer = act(backend, "microvm")
    assert answer.error is not None
    assert "the task needs microvm isolation, and the kubernetes backend gives gvisor, process" in answer.error
    assert [path for method, path in cluster.asked if method == "POST"] == [], "no pod was asked for"


# What an API server says.


def test_a_cluster_is_spoken_to_over_tls(
    cluster: Cluster, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways of a workspace that is larger than a record, and output of many frames."""
    with TlsFront("127.0.0.1", int(cluster.url.rpartition(":")[2]), tmp_path) as front:
        address = f"https://localhost:{front.port}"
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(address, front.certificate)))
        backend = make("kubernetes", scratch)
        volume = backend.volumes.create(SMALL)
        (volume.path / "big").write_bytes(bytes(range(256)) * 4000)
        cluster.on_run = playing(*[lambda wire: wire.out(b"a" * 60_000) for _ in range(10)])
        execution = backend.run(command(volume))
        assert (execution.status, execution.written) == ("ok", 600_000)
        assert (volume.path / "big").read_bytes() == bytes(range(256)) * 4000
        backend.close()


def test_a_cluster_whose_certificate_nobody_signed_is_not_spoken_to(
    cluster: Cluster, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TlsFront("127.0.0.1", int(cluster.url.rpartition(":")[2]), tmp_path) as front:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(f"https://localhost:{front.port}")))
        with pytest.raises(SandboxUnavailable, match="certificate verify failed"):
            make("kubernetes", scratch)


@pytest.mark.parametrize(
    ("code", "body", "headers", "said"),
    [
        (
            403,
            failure(403, "Forbidden", "sandboxclaims is forbidden"),
            {},
            r"403, sandboxclaims is forbidden \(this identity may not",
        ),
        (409, failure(409, "Conflict", "the object has been modified"), {}, "409, the object has been modified"),
        (
            429,
            failure(429, "TooManyRequests", "too many requests"),
            {"Retry-After": "3"},
            "429, too many requests, again in 3 s",
        ),
        (500, failure(500, "InternalError", "etcdserver: request timed out"), {}, "500, etcdserver: request timed out"),
        (503, "no healthy upstream", {}, "503, Service Unavailable"),
    ],
)
def test_a_refused_claim_is_for_another_try(
    cluster: Cluster,
    backend: KubernetesSandbox,
    code: int,
    body: dict[str, Any] | str,
    headers: dict[str, str],
    said: str,
) -> None:
    cluster.failures.append(("POST", CLAIMS, code, body, headers))
    with pytest.raises(SandboxFailed, match=f"no sandbox could be had from warm pool pool: {said}"):
        backend.create(Spec(SMALL))
    assert cluster.claims == {}


def test_a_refused_exec_is_for_another_try(cluster: Cluster, backend: KubernetesSandbox, volume: Volume) -> None:
    sandbox = backend.create(Spec(SMALL))
    cluster.failures.append(("GET", f"{PODS}/pool-1/exec", 403, failure(403, "Forbidden", "no exec"), {}))
    with pytest.raises(SandboxFailed, match="no command could be started in pod pool-1: 403, no exec"):
        sandbox.put(volume)
    sandbox.destroy()


def test_a_claim_that_is_never_ready_is_taken_back(cluster: Cluster, backend: KubernetesSandbox) -> None:
    cluster.ready = False
    with pytest.raises(SandboxFailed, match=r"Could not resolve claim readiness .* within 2 seconds"):
        backend.create(Spec(SMALL))
    assert cluster.claims == {}


@pytest.mark.parametrize("reason", ["InvalidMetadata", "SandboxExpired", "WarmPoolNotFound", "TemplateNotFound"])
def test_a_claim_that_cannot_become_ready_is_not_waited_for(
    cluster: Cluster, backend: KubernetesSandbox, reason: str
) -> None:
    cluster.ready, cluster.condition = False, {"reason": reason, "message": f"because of {reason}"}
    with pytest.raises(SandboxFailed, match=f"because of {reason}"):
        backend.create(Spec(SMALL))
    assert cluster.claims == {}


def test_a_pod_that_is_gone_is_not_alive(cluster: Cluster, backend: KubernetesSandbox) -> None:
    sandbox = backend.create(Spec(SMALL))
    cluster.pods["pool-1"].document["status"]["phase"] = "Failed"
    assert not sandbox.alive
    del cluster.pods["pool-1"]
    assert not sandbox.alive
    sandbox.destroy()


def test_an_api_server_that_is_away_is_for_another_try(cluster: Cluster, backend: KubernetesSandbox) -> None:
    sandbox = backend.create(Spec(SMALL))
    cluster.failures += [("DELETE", CLAIMS, 500, failure(500, "InternalError", "away"), {})] * 4
    with pytest.raises(SandboxFailed, match="could not be removed, and the cluster does so when it expires: 500, away"):
        sandbox.destroy()
    cluster.failures.clear()
    sandbox.destroy()
    assert cluster.claims == {}


# Isolation, and what pods hold.


@pytest.mark.parametrize(
    ("handler", "isolation"),
    [("runsc", {"process", "gvisor"}), ("gvisor", {"process", "gvisor"}), ("kata-qemu", {"process", "microvm"})],
)
def test_the_runtime_class_says_how_pods_isolate(
    cluster: Cluster, scratch: Path, handler: str, isolation: set[str]
) -> None:
    add_runtime(cluster, "gvisor", handler)
    backend = make("kubernetes", scratch)
    try:
        assert backend.capabilities().isolation == isolation
        (missing,) = {"gvisor", "microvm"} - isolation
        with pytest.raises(
            IsolationUnavailable, match=f"the task needs {missing} isolation, and the kubernetes backend gives"
        ):
            backend.create(Spec(SMALL, missing))  # type: ignore[arg-type]
    finally:
        backend.close()


def test_a_pod_without_a_runtime_class_is_a_process(cluster: Cluster, scratch: Path) -> None:
    del only_template(cluster)["spec"]["podTemplate"]["spec"]["runtimeClassName"]
    backend = make("kubernetes", scratch)
    try:
        assert backend.capabilities().isolation == {"process"}
        assert "hostUsers: false" in backend.capabilities().missing[-1]
        asked: list[dict[str, Any]] = []
        cluster.on_run = playing(lambda wire: asked.append(wire.request["rlimits"]))
        backend.run(command(backend.volumes.create(SMALL)))
        assert "RLIMIT_NPROC" not in asked[0], "it would count other pods' processes"
    finally:
        backend.close()


def test_a_pod_with_another_runtime_class_than_its_template_is_not_used(
    cluster: Cluster, backend: KubernetesSandbox
) -> None:
    only_template(cluster)["spec"]["podTemplate"]["spec"]["runtimeClassName"] = "runc"
    with pytest.raises(
        SandboxFailed, match="pod pool-1 has the RuntimeClass runc, and its pool's template says gvisor"
    ):
        backend.create(Spec(SMALL))
    assert cluster.claims == {}


@pytest.mark.parametrize(("name", "held"), [("memory_mb", "544"), ("disk_mb", "256"), ("cpus", "1")])
def test_a_task_that_needs_more_than_a_pod_holds_is_refused(
    backend: KubernetesSandbox, volume: Volume, name: str, held: str
) -> None:
    """1024 MiB less the file systems in memory: 256 + 128 + 64 + 32, counted by hand from infra/kubernetes/sandboxes/gvisor.yaml."""
    with pytest.raises(IsolationUnavailable, match=f"{name}=4000, and the pods of pool pool hold {held}: lower it"):
        backend.run(command(volume, SandboxLimits().model_copy(update={name: 4000})))
    sandbox = backend.create(Spec(SandboxLimits()))
    sandbox.put(volume)
    with pytest.raises(IsolationUnavailable, match=f"{name}=4000"):
        sandbox.exec(command(volume, SandboxLimits().model_copy(update={name: 4000})))
    sandbox.destroy()


def only_template(cluster: Cluster) -> dict[str, Any]:
    (found,) = cluster.objects[f"{EXTENSIONS}/sandboxtemplates"].values()
    return found


# At start.


def spoiled(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def spoil(spec: dict[str, Any]) -> None:
        *above, last = path.split(".")
        for key in above:
            spec = spec[int(key)] if isinstance(spec, list) else spec[key]
        spec[last] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoiled("automountServiceAccountToken", True), "the agent's code would get a token"),
        (spoiled("hostNetwork", True), "namespaces are shared"),
        (spoiled("shareProcessNamespace", True), "namespaces are shared"),
        (spoiled("containers.0.name", "main"), "there is no container 'sandbox'"),
        (spoiled("containers.1.name", "carrier"), "there is no container 'porter'"),
        (spoiled("containers.0.env", []), "LONGSTRIDE_SANDBOX=pod is not in the environment of 'sandbox'"),
        (spoiled("containers.0.resources", {}), "container 'sandbox' has no limits of memory and cpu"),
        (spoiled("containers.0.volumeMounts", []), "/workspace is no emptyDir with a sizeLimit"),
        (
            spoiled("volumes", [{"name": "workspace", "hostPath": {"path": "/"}}]),
            "/workspace is no emptyDir with a sizeLimit",
        ),
    ],
)
def test_a_template_that_does_not_isolate_is_refused(
    cluster: Cluster, scratch: Path, spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    spoil(only_template(cluster)["spec"]["podTemplate"]["spec"])
    with pytest.raises(SandboxUnavailable, match=f"the pods of warm pool pool cannot be used: {said}"):
        make("kubernetes", scratch)
    assert cluster.claims == {}


def test_without_its_custom_resources_a_cluster_says_what_to_install(cluster: Cluster, scratch: Path) -> None:
    del cluster.objects[f"{EXTENSIONS}/sandboxwarmpools"]
    with pytest.raises(
        SandboxUnavailable, match=r"has no sandboxwarmpools\.extensions\.agents\.x-k8s\.io: install agent-sandbox"
    ):
        make("kubernetes", scratch)


def test_an_unknown_pool_is_named(cluster: Cluster, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSTRIDE_KUBERNETES_POOL", "other")
    with pytest.raises(
        SandboxUnavailable, match="there is no sandboxwarmpools 'other' in namespace 'sandboxes': apply infra/"
    ):
        make("kubernetes", scratch)


def test_an_unknown_runtime_is_named(cluster: Cluster, scratch: Path) -> None:
    add_runtime(cluster, "gvisor", "youki")
    with pytest.raises(SandboxUnavailable, match="has the handler 'youki', and what that isolates is not known"):
        make("kubernetes", scratch)
    cluster.objects["/apis/node.k8s.io/v1/runtimeclasses"].clear()
    with pytest.raises(SandboxUnavailable, match="the cluster has no RuntimeClass 'gvisor'"):
        make("kubernetes", scratch)


def test_an_identity_without_rights_is_told_which_role_to_bind(cluster: Cluster, scratch: Path) -> None:
    cluster.failures.append(("POST", LEASES, 403, failure(403, "Forbidden", "leases is forbidden"), {}))
    with pytest.raises(
        SandboxUnavailable, match=r"leases is forbidden .*bind the role in infra/kubernetes/sandboxes/access\.yaml"
    ):
        make("kubernetes", scratch)


def test_a_trial_that_does_not_end_as_told_is_no_backend(cluster: Cluster, scratch: Path) -> None:
    cluster.on_run = playing(lambda wire: wire.err(b"odd"), code=0)
    with pytest.raises(SandboxUnavailable, match="kubernetes does not work here: a trial ended as"):
        make("kubernetes", scratch)
    assert (cluster.claims, cluster.leases) == ({}, {})


def test_without_a_cluster_it_says_where_it_looked(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SandboxUnavailable, match=r"no cluster to ask: .*KUBECONFIG"):
        make("kubernetes", scratch)
    assert "kubernetes" not in installed()


def test_doctor_looks_at_a_cluster_that_is_there(cluster: Cluster) -> None:
    assert installed()[-1] == "kubernetes"


# What dead executors leave.


def test_sandboxes_of_an_executor_that_is_gone_are_removed(
    cluster: Cluster, backend: KubernetesSandbox, scratch: Path
) -> None:
    ours = backend.create(Spec(SMALL))
    dead = make("kubernetes", scratch)
    orphans = [dead.create(Spec(SMALL)) for _ in range(2)]
    assert backend.reap() == [], "it lives"
    (name,) = [name for name in cluster.leases if name != backend._presence.name]  # type: ignore[union-attr]
    cluster.leases[name]["spec"]["renewTime"] = long_ago()
    assert sorted(backend.reap()) == sorted(orphan._claim for orphan in orphans)
    assert list(cluster.claims) == [ours._claim]
    assert list(cluster.leases) == [backend._presence.name]  # type: ignore[union-attr]
    assert not orphans[0].alive
    ours.destroy()
    dead.close()


def test_claims_without_a_lease_are_nobodys_and_others_are_left_alone(
    cluster: Cluster, backend: KubernetesSandbox
) -> None:
    for name, labels in (("orphan", {EXECUTOR: "gone"}), ("strange", {"made-by": "somebody-else"})):
        cluster.claims[name] = {"metadata": {"name": name, "labels": labels}}
    assert backend.reap() == ["orphan"]
    assert list(cluster.claims) == ["strange"]


def test_an_executor_that_others_took_for_dead_says_that_it_lives(cluster: Cluster, backend: KubernetesSandbox) -> None:
    presence = backend._presence
    assert presence is not None
    cluster.leases.clear()
    presence.renew()
    assert list(cluster.leases) == [presence.name]
    cluster.leases[presence.name]["spec"]["renewTime"] = long_ago()
    presence.renew()
    assert cluster.leases[presence.name]["spec"]["renewTime"] > long_ago()


def test_an_executor_that_starts_while_another_reaps_keeps_its_claims(
    cluster: Cluster, backend: KubernetesSandbox
) -> None:
    """It makes its lease first, so whoever looks at the claims first cannot take one of its for an orphan."""
    cluster.asked.clear()
    backend.reap()
    assert [path.rpartition("/")[2] for method, path in cluster.asked if method == "GET"] == ["sandboxclaims", "leases"]


def test_closing_leaves_nothing_behind(cluster: Cluster, scratch: Path) -> None:
    backend = make("kubernetes", scratch)
    backend.close()
    assert (cluster.claims, cluster.leases) == ({}, {})
    assert list((scratch).iterdir()) == []
