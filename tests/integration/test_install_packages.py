"""Packages of a local index, installed by real sandboxes that have no network."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command
from longstride.sandbox.egress.served import way_to
from longstride.sandbox.workspace import Workspaces
from longstride.tools.executor import Executor
from longstride.tools.packages.cache import PackageCache
from longstride.tools.packages.mirror import Mirror
from longstride.tools.packages.upstream import Upstream
from longstride.tools.registry import builtin_tools
from tests.support.package_index import PackageIndex, served, shop, wheel
from tests.support.sandboxes import Arena, arena

LIMITS = SandboxLimits(wall_s=60, cpu_s=60, memory_mb=256, disk_mb=16, files=2000, output_bytes=65_536)
TOOLS = ("install_packages", "shell", "bash", "python", "run_tests", "submit")


@dataclass
class Shop:
    """Sandboxes, and an index on this host."""

    box: Arena
    index: PackageIndex
    workspace: ArtifactRef | None = None

    def act(self, tool: str, limits: SandboxLimits = LIMITS, **arguments: object) -> tuple[str, str]:
        """One more step of a task; status and text."""
        told = self.step(tool, limits, **arguments)
        assert told.observation is not None
        return told.observation.status, told.observation.text

    def step(self, tool: str, limits: SandboxLimits = LIMITS, **arguments: object) -> ActionExecuted:
        done = self.box.act(tool, tools=TOOLS, limits=limits, workspace=self.workspace, **arguments)
        self.workspace = done.workspace
        return done

    def install(self, *packages: str) -> tuple[str, str]:
        return self.act("install_packages", packages=list(packages))


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena() as made:
        yield made


@pytest.fixture
def open_shop(box: Arena, tmp_path: Path) -> Iterator[Callable[[PackageIndex], Shop]]:
    with ExitStack() as stack:

        def make(index: PackageIndex, place: Arena = box) -> Shop:
            stack.enter_context(served(index))
            upstream = Upstream(index.url)
            stack.callback(upstream.close)
            mirror = Mirror(upstream, PackageCache(tmp_path / "cache", 64 << 20))
            executor = Executor(place.backend, place.workspaces, place.artifacts, builtin_tools(), packages=mirror)
            return Shop(replace(place, executor=executor), index)

        yield make
    box.workspaces.forget("task")


@pytest.fixture
def here(open_shop: Callable[[PackageIndex], Shop]) -> Shop:
    return open_shop(shop())


IMPORT = "import greeter, wording; print(greeter.VERSION, wording.WORD)"


def test_what_is_installed_is_there_in_every_later_step(here: Shop) -> None:
    assert here.install("greeter") == ("ok", "installed greeter 2.0, wording 1.0")
    assert here.act("python", code=IMPORT) == ("ok", "2.0 hello\n")
    assert here.act("shell", command="greet; git init -q . && git status --porcelain") == ("ok", "hello from greeter\n")
    fresh = replace(here.box, workspaces=Workspaces(here.box.artifacts, here.box.backend.volumes))
    again = Executor(fresh.backend, fresh.workspaces, fresh.artifacts, builtin_tools())
    restored = Shop(replace(fresh, executor=again), here.index, here.workspace)
    assert restored.act("python", code=IMPORT) == ("ok", "2.0 hello\n")
    fresh.workspaces.close()


def test_a_shell_that_goes_on_sees_what_was_installed_in_between(here: Shop) -> None:
    assert here.act("bash", command="set -u; cd /workspace; X=1; command -v greet || echo none") == ("ok", "none\n")
    here.install("greeter")
    for _ in range(2):
        assert here.act("bash", command='greet; python3 -c "import greeter"; echo $X') == (
            "ok",
            "hello from greeter\n1\n",
        )
    code = "import unittest, greeter\nclass T(unittest.TestCase):\n  def test(self): greeter.VERSION\n"
    here.act("shell", command=f"cat > test_it.py <<'END'\n{code}END")
    assert here.act("run_tests")[0] == "ok"


def test_runcs_sandboxes_install_them_too(open_shop) -> None:
    with arena(name="runc") as place:
        here = open_shop(shop(), place)
        assert here.install("greeter") == ("ok", "installed greeter 2.0, wording 1.0")
        assert here.act("shell", command=f'greet && python3 -c "{IMPORT}"') == ("ok", "hello from greeter\n2.0 hello\n")


def test_the_record_shows_what_was_downloaded(here: Shop) -> None:
    done = here.step("install_packages", packages=["wording"])
    assert done.traffic is not None
    assert [(c.host, c.port, c.verdict, c.why) for c in done.traffic.connections] == [
        ("packages.longstride", 80, "allowed", "package index: the page of wording, from the index"),
        ("packages.longstride", 80, "allowed", "package index: wording-1.0-py3-none-any.whl, from the index"),
    ]
    assert here.step("shell", command="true").traffic is None


def test_another_task_gets_it_from_the_cache(here: Shop) -> None:
    here.install("wording")
    asked = list(here.index.asked)
    here.workspace = None
    done = here.step("install_packages", packages=["wording"])
    assert done.traffic is not None
    assert [c.why for c in done.traffic.connections] == [
        "package index: the page of wording, from the cache",
        "package index: wording-1.0-py3-none-any.whl, from the cache",
    ]
    assert here.index.asked == asked


def test_one_more_package_leaves_the_others_as_they_are(here: Shop) -> None:
    here.install("greeter[more]==1.0")
    assert here.install("built") == ("ok", "installed built 1.0\nthere already: greeter 1.0, spice 1.0, wording 1.0")
    assert here.act("python", code="import built, spice; print(built.FROM, spice.HEAT)") == ("ok", "source 9\n")
    assert here.install("greeter>1")[1].splitlines() == [
        "installed greeter 2.0",
        "removed, as nothing needs it any more: spice",
        "there already: built 1.0, wording 1.0",
    ]
    assert here.act("shell", command="ls -A .packages; cat .packages/requested.txt") == (
        "ok",
        ".gitignore\nbin\nbuilt\nbuilt-1.0.dist-info\ngreeter\ngreeter-2.0.dist-info\nrequested.txt\nwording\n"
        "wording-1.0.dist-info\nbuilt==1.0\ngreeter==2.0\n",
    )


def test_what_cannot_be_together_is_said_and_changes_nothing(here: Shop) -> None:
    here.install("greeter==2.0")
    status, text = here.install("picky")
    assert status == "failed"
    assert (
        "Cannot install greeter==2.0 and picky==1.0 because these package versions have conflicting dependencies"
        in text
    )
    assert here.act("python", code=IMPORT) == ("ok", "2.0 hello\n")
    assert here.act("shell", command="ls -A") == ("ok", ".packages\n")


def test_a_package_that_is_not_there(here: Shop) -> None:
    status, text = here.install("nosuch-thing")
    assert status == "failed"
    assert "No matching distribution found for nosuch-thing" in text
    assert "[network: the package index has no project 'nosuch-thing']" in text
    assert here.act("shell", command="ls -A") == ("ok", "(no output)")


@pytest.mark.parametrize("style", ["json", "html"])
def test_both_kinds_of_pages(open_shop, style) -> None:
    assert open_shop(replace(shop(), style=style)).install("greeter")[0] == "ok"


def test_an_index_that_asks_who_is_there(open_shop) -> None:
    assert open_shop(replace(shop(), login="robot:s-cret")).install("wording")[0] == "ok"


def test_a_file_that_is_not_what_the_index_says(open_shop) -> None:
    name = "wording-1.0-py3-none-any.whl"
    status, text = open_shop(replace(shop(), lies={name})).install("wording")
    assert status == "failed"
    assert f"[network: {name} is not the file that the index names: its sha256 is " in text


def test_a_package_without_a_hash(open_shop) -> None:
    status, text = open_shop(replace(shop(), unhashed={"wording-1.0-py3-none-any.whl"})).install("wording")
    assert status == "failed"
    assert "[network: the package index has no file of wording with a sha256, without which none is installed]" in text


@pytest.mark.parametrize("how", ["elsewhere", "redirects"])
def test_an_index_does_not_lead_to_what_else_this_host_has(open_shop, how: str) -> None:
    with served(PackageIndex({})) as private:
        name, target = "wording-1.0-py3-none-any.whl", f"http://127.0.0.1:{private.port}/secret"
        there = {name: target} if how == "elsewhere" else {f"/root/+f/{name}": target}
        status, text = open_shop(replace(shop(), **{how: there})).install("wording")
        assert status == "failed"
        assert "the package index sends to 127.0.0.1, which is at 127.0.0.1 is loopback: only the index itself" in text
        assert private.asked == []


ASK = """
import urllib.error, urllib.request
for path in {paths!r}:
    try: print(urllib.request.urlopen("http://packages.longstride" + path).status)
    except urllib.error.HTTPError as error: print(error.code)
"""


def test_code_of_a_package_reaches_the_index_alone(here: Shop, box: Arena) -> None:
    """What runs while a source distribution is built has the whole way out of the call."""
    mirror = here.box.executor._packages
    assert mirror is not None
    sites = {"packages.longstride": mirror}
    paths = [
        "/simple/wording/",
        "/simple/",
        "/simple/../+f/x/",
        "/files/wording/" + "0" * 64 + "/x.whl",
        "/root/simple/wording/",
    ]
    code = ASK.format(paths=paths) + (
        f"import socket\ns = socket.create_connection(('127.0.0.1', 3128))\n"
        f"s.sendall(b'CONNECT 127.0.0.1:{here.index.port} HTTP/1.0\\r\\n\\r\\n'); print(s.recv(100)[:12])\n"
        "s = socket.create_connection(('127.0.0.1', 3128))\n"
        "s.sendall(b'CONNECT packages.longstride:80 HTTP/1.0\\r\\n\\r\\n'); print(s.recv(100)[:12])"
    )
    with box.volume(LIMITS) as volume:
        command = Command(("python3", "-c", code), volume, LIMITS, egress=way_to(sites), sites=sites)
        end = box.backend.run(command)
    assert end.stdout.split(b"\n")[:-1] == [
        *(b"200", b"404", b"404", b"404", b"404"),
        *(b"b'HTTP/1.1 403'", b"b'HTTP/1.1 405'"),
    ], end.stderr


def test_a_workspace_that_is_too_small(open_shop) -> None:
    index = shop()
    index.files["wording"]["wording-1.0-py3-none-any.whl"] = wheel("wording", "1.0", f"WORD = '{'x' * (2 << 20)}'\n")
    here = open_shop(index)
    small = LIMITS.model_copy(update={"disk_mb": 1})
    status, text = here.act("install_packages", small, packages=["wording"])
    assert (status, text.startswith("nothing was installed: the workspace has no room for it; ")) == ("limit", True)
    assert here.act("shell", small, command="ls -A") == ("ok", "(no output)")


def test_a_call_that_is_stopped_leaves_the_old_packages(open_shop) -> None:
    index = shop()
    here = open_shop(index)
    here.install("wording")
    hurried = LIMITS.model_copy(update={"wall_s": 0.4})
    status, _ = here.act("install_packages", hurried, packages=["greeter"])
    assert status == "timeout"
    assert here.act("shell", command="ls -A; python3 -c 'import wording'") == ("ok", ".packages\n")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("-r requirements.txt", "'-r requirements.txt' is not a package of an index: "),
        ("--index-url=http://x", "'--index-url=http://x' is not a package of an index: "),
        ("./wheel.whl", "'./wheel.whl' is not a package of an index: "),
        (
            "wording @ https://x.example/w.whl",
            "'wording @ https://x.example/w.whl' names an address, and packages come",
        ),
        ("git+https://x.example/w", "'git+https://x.example/w' is not a package of an index: "),
        ("wording=1", "'wording=1' is not a package of an index: "),
    ],
)
def test_what_is_no_requirement(here: Shop, spec: str, why: str) -> None:
    status, text = here.install("wording", spec)
    assert (status, text[: len(why)]) == ("invalid", why)
    assert here.index.asked == []


def test_without_an_index_the_tool_says_what_is_missing(box: Arena) -> None:
    done = box.act("install_packages", tools=TOOLS, packages=["wording"])
    assert done.observation is not None
    assert (done.observation.status, done.observation.text) == (
        "failed",
        "no package index is configured: the operator names one by starting the tool-executor with "
        "LONGSTRIDE_TOOL_EXECUTOR_PACKAGE_INDEX=https://HOST/simple",
    )


def test_checks_see_the_packages_but_not_in_the_place_of_what_the_host_has(here: Shop) -> None:
    """A package that is named like a module of the standard library must not answer in its place."""
    here.install("greeter", "json")
    plant = "mkdir -p .packages/bin; printf '#!/bin/sh\\nexit 0\\n' > .packages/bin/false; chmod +x .packages/bin/false"
    here.act("shell", command=plant)
    checks = (
        CommandCheck(name="imports", run="python3 -c 'import greeter; assert greeter.VERSION'"),
        CommandCheck(name="command", run="greet"),
        CommandCheck(name="stdlib", run="python3 -c 'import json; json.dumps; raise SystemExit(3)'"),
        CommandCheck(name="path", run="/bin/sh -c 'false'; false"),
        CommandCheck(name="program", run="env false"),
    )
    done = here.step("submit", checks=checks, answer="x")
    assert [(check.name, check.passed) for check in done.checks] == [
        ("imports", True),
        ("command", True),
        ("stdlib", False),
        ("path", False),
        ("program", False),
    ]
