"""Secrets: read by a call, kept by nothing."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import snapshot
from longstride.sandbox.errors import InputUnusable
from longstride.sandbox.memory import MemorySandbox, Process
from longstride.sandbox.secrets import DirectorySecrets, without_secrets
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.storage.zstd import MAGIC, decompress
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools

VALUE = "pA55-wörd-0123"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"


def shell(process: Process) -> int:
    """The twin of a shell: a few words that use secrets."""
    value = process.files.get("secrets/api", b"").decode()
    match process.argv[-1]:
        case "print":
            process.print(f"key is {value.strip()}, again {value.strip()}")
        case "flood":
            process.print("\n".join(f"line {n}: {value.strip()}" for n in range(2000)))
        case "keep":
            (process.workspace / "safe").write_text("kept")
            (process.workspace / "config").write_bytes(bytes((1 << 20) - 5) + value.encode())
            (process.workspace / "link").symlink_to(f"/nowhere/{value.strip()}")
            (process.workspace / value.strip()).write_text("its name tells")
        case "list":
            process.print(", ".join(sorted(process.files)) or "none")
        case "check":
            process.print(value)
            return 1
        case word:
            raise AssertionError(f"no command {word!r}")
    return 0


class World:
    def __init__(self, folder: Path) -> None:
        backend = MemorySandbox(folder / "v", {"sh": shell, "/bin/sh": shell})
        self.secrets = folder / "secrets"
        self.artifacts = MemoryArtifacts()
        self.workspaces = Workspaces(self.artifacts, backend.volumes)
        registry, secrets = builtin_tools(), DirectorySecrets(self.secrets)
        self.executor = Executor(backend, self.workspaces, self.artifacts, registry, secrets)

    def put(self, name: str, value: str, tenant: str = "acme") -> None:
        (self.secrets / tenant).mkdir(parents=True, exist_ok=True)
        (self.secrets / tenant / name).write_text(value)

    def do(
        self, tool: str, *secrets: str, tenant: str = "acme", workspace: ArtifactRef | None = None, **arguments: object
    ) -> ActionExecuted:
        checks = arguments.pop("checks", ())
        command = ExecuteAction(
            step=1,
            action=Action.model_validate({"tool": tool, "arguments": arguments}),
            tools=(),
            workspace=workspace,
            limits=SandboxLimits(wall_s=5, disk_mb=4),
            isolation="process",
            secrets=secrets,
            checks=checks,
        )
        return self.executor.execute(command, task_id="task", session_id="s", tenant=tenant)

    def everything_stored(self) -> bytes:
        """All objects, unpacked."""
        objects = [data for data, _ in self.artifacts._objects.values()]
        return b"\n".join(decompress(data, 1 << 26) if data.startswith(MAGIC) else data for data in objects)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.put("api", VALUE + "\n")
    yield made
    made.workspaces.close()


@pytest.mark.parametrize("command", ["print", "flood"])
def test_what_a_call_prints_of_a_secret_is_stored_nowhere(world: World, command: str, caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        executed = world.do("shell", "api", command=command)
    assert executed.observation is not None
    assert "[secret api]" in executed.observation.text
    assert VALUE not in executed.model_dump_json()
    assert VALUE.encode() not in world.everything_stored()
    assert (executed.observation.full is not None) == (command == "flood")
    assert VALUE not in caplog.text


def test_what_holds_a_secret_is_not_kept_in_the_workspace(world: World) -> None:
    """Across a seam of the search, in a link's target, and in a name."""
    executed = world.do("shell", "api", command="keep")
    assert executed.observation is not None
    assert executed.workspace is not None
    assert executed.observation.text.endswith(
        "[not kept in the workspace: config (holds secret api), link (holds secret api), "
        "[secret api] (holds secret api)]"
    )
    assert set(snapshot.load(world.artifacts, executed.workspace).manifest.files) == {"safe"}
    assert VALUE.encode() not in world.everything_stored()
    again = world.do("read_file", workspace=executed.workspace, path="config")
    assert again.observation is not None
    assert again.observation.text == "config: no such file or directory"


def test_a_check_that_prints_one_does_not_tell_it(world: World) -> None:
    check = CommandCheck(name="uses it", run="check")
    executed = world.do("submit", "api", answer="42", checks=(check,))
    assert "[secret api]" in executed.checks[0].detail
    assert VALUE not in executed.model_dump_json()


def test_only_a_task_that_names_a_secret_sees_it(world: World) -> None:
    world.put("other", "something else")
    for names, shown in (
        ((), "none\n"),
        (("other",), "secrets/other\n"),
        (("api", "other"), "secrets/api, secrets/other\n"),
    ):
        executed = world.do("shell", *names, command="list")
        assert executed.observation is not None
        assert executed.observation.text == shown


@pytest.mark.parametrize(
    ("name", "tenant"), [("none", "acme"), ("api", "globex"), ("api", ".."), ("api", "acme/../acme")]
)
def test_an_unknown_secret_is_the_tasks_mistake(world: World, name: str, tenant: str) -> None:
    executed = world.do("shell", name, tenant=tenant, command="print")
    assert executed.observation is None
    assert executed.input_error == (
        f"the tool-executor has no secret {name!r} for tenant {tenant!r}: "
        f"put its value into the file {tenant}/{name} of its secrets folder"
    )


@pytest.mark.parametrize("value", ["", "short\n", "x" * 70_000])
def test_a_value_that_cannot_be_kept_out_is_refused(world: World, value: str) -> None:
    world.put("odd", value)
    executed = world.do("shell", "odd", command="print")
    assert (
        executed.input_error
        == f"secret 'odd' has {len(value.strip())} bytes: between 6 and 65536 can be kept out of what is stored"
    )


def test_a_secret_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "acme" / "folder").mkdir(parents=True)
    with pytest.raises(InputUnusable, match="secret 'folder' cannot be read by the tool-executor: Is a directory"):
        DirectorySecrets(tmp_path).get("acme", "folder")


def test_lines_of_a_long_secret_are_taken_out_one_by_one() -> None:
    printed = "\n".join(f"  {line}" for line in PEM.splitlines()) + "\nend"
    assert without_secrets(PEM + "end", {"pem": PEM.encode()}) == "[secret pem]\nend"
    assert without_secrets(printed, {"pem": PEM.encode()}) == "  [secret pem]\n" * 4 + "end"


def test_the_longest_value_goes_first() -> None:
    values = {"user": b"abcdef", "url": b"https://abcdef@host/"}
    assert without_secrets("GET https://abcdef@host/ as abcdef", values) == "GET [secret url] as [secret user]"
