"""Bundles for OCI runtimes, and the command lines that run them."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp", reason="libseccomp is not installed", exc_type=RuntimeError)

from longstride.sandbox import bundle
from longstride.sandbox.base import Owner
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.oci import Runtime, find_runtime
from longstride.sandbox.rootfs import Shared

NAMESPACE = Path("/proc/7/ns/user")
OWNER = Owner(1_900_000_010, 1_900_000_010)


@pytest.fixture
def layout(tmp_path: Path) -> bundle.Layout:
    shared = Shared(tmp_path / "etc", tmp_path / "empty", tmp_path / "filter", ((tmp_path / "python", "/opt/python"),))
    run = tmp_path / "run"
    return bundle.Layout(tmp_path / "root", shared, run / "tmp", run / "shm", run / "support", run / "workspace")


def mounts(config: bundle.Config) -> dict[str, bundle.Config]:
    return {mount["destination"]: mount for mount in config["mounts"]}


def test_only_scratch_and_workspace_can_be_written(layout: bundle.Layout) -> None:
    config = bundle.config(layout, cgroup="/group", owner=OWNER, user_namespace=NAMESPACE)
    writable = {target for target, mount in mounts(config).items() if "ro" not in mount["options"]}
    assert writable == {"/tmp", "/dev/shm", "/dev/pts", "/workspace"}
    assert config["root"] == {"path": str(layout.root), "readonly": True}
    assert all("nosuid" in mount["options"] for mount in config["mounts"])


def test_the_code_has_no_privilege_and_ids_of_its_own(layout: bundle.Layout) -> None:
    config = bundle.config(layout, cgroup="/group", owner=OWNER, user_namespace=NAMESPACE)
    process, linux = config["process"], config["linux"]
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert len(process["capabilities"]) == 5
    assert process["noNewPrivileges"] is True
    assert process["user"] == {"uid": 1000, "gid": 1000}
    assert {m["containerID"]: m["hostID"] for m in linux["uidMappings"]} == {0: OWNER.uid + 1, 1000: OWNER.uid}
    kinds = {namespace["type"] for namespace in linux["namespaces"]}
    assert kinds == {"pid", "network", "ipc", "uts", "mount", "cgroup", "user"}
    assert linux["cgroupsPath"] == "/group"
    joined = {namespace["type"]: namespace["path"] for namespace in linux["namespaces"] if "path" in namespace}
    assert joined == {"user": str(NAMESPACE)}, "the one that its owner made, and none of the host's"


def test_the_filter_is_the_one_of_bubblewrap(layout: bundle.Layout) -> None:
    rules = bundle.config(layout, owner=OWNER, user_namespace=NAMESPACE)["linux"]["seccomp"]["syscalls"]
    plain = {name: rule["errnoRet"] for rule in rules if "args" not in rule for name in rule["names"]}
    assert (plain["mount"], plain["ptrace"], plain["bpf"]) == (1, 1, 1)
    assert (plain["clone3"], plain["io_uring_setup"]) == (38, 38)
    conditions = [(rule["names"], rule["args"]) for rule in rules if "args" in rule]
    assert (["clone"], [{"index": 0, "value": 1 << 28, "valueTwo": 1 << 28, "op": "SCMP_CMP_MASKED_EQ"}]) in conditions
    assert (["socket"], [{"index": 0, "value": 16, "op": "SCMP_CMP_GT"}]) in conditions
    raw = [
        {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"},
        {"index": 1, "value": 15, "valueTwo": 3, "op": "SCMP_CMP_MASKED_EQ"},
    ]
    assert (["socket"], raw) in conditions


def test_a_kernel_of_its_own_needs_no_mapped_ids(layout: bundle.Layout) -> None:
    config = bundle.config(layout)
    assert not {"uidMappings", "gidMappings", "cgroupsPath"} & set(config["linux"])
    assert "ro" in mounts(config)["/proc"]["options"]


def test_a_kernel_of_its_own_refuses_the_same_calls(layout: bundle.Layout) -> None:
    """gVisor answers EPERM to whatever has an error, and ENOSYS where Linux does so without a tracer (seccomp(2))."""
    shared = bundle.config(layout, owner=OWNER, user_namespace=NAMESPACE)["linux"]["seccomp"]["syscalls"]
    own = bundle.config(layout)["linux"]["seccomp"]["syscalls"]
    assert [(rule["names"], rule.get("args")) for rule in own] == [(rule["names"], rule.get("args")) for rule in shared]
    actions = {name: rule["action"] for rule in own if "args" not in rule for name in rule["names"]}
    assert (actions["mount"], actions["unshare"]) == ("SCMP_ACT_ERRNO", "SCMP_ACT_ERRNO")
    assert (actions["clone3"], actions["io_uring_setup"]) == ("SCMP_ACT_TRACE", "SCMP_ACT_TRACE")


def test_the_root_holds_mount_points_and_links_alone(layout: bundle.Layout) -> None:
    bundle.make_root(layout.root, layout.shared)
    found = {path.relative_to(layout.root).as_posix() for path in layout.root.rglob("*")}
    assert {"usr", "etc", "proc", "dev", "tmp", "workspace", "run/longstride", "var/tmp", "opt/python"} <= found
    assert not [path for path in layout.root.rglob("*") if path.is_file() and not path.is_symlink()]
    targets = {mount.strip("/") for mount in mounts(bundle.config(layout))}
    assert {target for target in targets if not target.startswith("dev/")} <= found, "each has its place"


def test_a_written_bundle_is_the_config(layout: bundle.Layout, tmp_path: Path) -> None:
    config = bundle.config(layout, owner=OWNER, user_namespace=NAMESPACE)
    bundle.write(tmp_path, config)
    assert json.loads((tmp_path / "config.json").read_text()) == config


def test_command_lines() -> None:
    state, folder = Path("/s/state"), Path("/s/run-1/bundle")
    runc = Runtime("runc", "/usr/bin/runc").command_line(state, folder, "ls-1-2")
    assert " ".join(runc) == (
        "/usr/bin/runc --root /s/state run --keep --bundle /s/run-1/bundle --pid-file /s/run-1/bundle/pid ls-1-2"
    )
    runsc = Runtime("runsc", "/usr/bin/runsc").command_line(state, folder, "ls-1-2")
    assert " ".join(runsc) == (
        "/usr/bin/runsc --root /s/state --ignore-cgroups --network=none --platform=ptrace --file-access-mounts=shared "
        "--oci-seccomp run --bundle /s/run-1/bundle ls-1-2"
    )


def test_a_runtime_that_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match=r"runsc is not installed: .*gvisor\.dev"):
        find_runtime("runsc")
