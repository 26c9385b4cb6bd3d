"""Installing, with a script in the place of apt-get: what it is asked for, and what becomes of its failures."""

import os
from pathlib import Path

import pytest

from infra.native import install
from infra.native.errors import StackError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that lacks one package, and whose apt-get brings it."""
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncase "$*" in *install*) touch {tmp_path}/wanted;; esac\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{apt.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(install, "PACKAGES", {"present": lambda: True, "wanted": (tmp_path / "wanted").exists})
    monkeypatch.setattr(install, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(install, "POLICY", tmp_path / "policy-rc.d")
    return tmp_path


def test_only_what_is_missing_is_installed_after_one_update(machine: Path) -> None:
    said: list[str] = []
    install.install(said.append)
    calls = (machine / "calls").read_text().splitlines()
    assert [call.split("Timeout=600 ")[1] for call in calls] == [
        "update",
        "install -y --no-install-recommends wanted",
    ]
    assert said == ["installing wanted with apt-get"]


def test_where_nothing_is_missing_apt_is_not_called(machine: Path) -> None:
    (machine / "wanted").touch()
    install.install(lambda text: pytest.fail(text))
    assert not (machine / "calls").exists()


def test_packages_do_not_start_services_and_the_means_to_that_is_removed(machine: Path) -> None:
    apt = machine / "bin" / "apt-get"
    apt.write_text(apt.read_text() + f"{machine}/policy-rc.d && exit 9\necho $? > {machine}/policy\n")
    install.install(lambda text: None)
    assert (machine / "policy").read_text() == "101\n"
    assert not (machine / "policy-rc.d").exists()


def test_a_policy_that_was_there_stays(machine: Path) -> None:
    (machine / "policy-rc.d").write_text("somebody's")
    install.install(lambda text: None)
    assert (machine / "policy-rc.d").read_text() == "somebody's"


def test_without_root_the_missing_are_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match=r"missing system packages: wanted.*apt-get install .* wanted"):
        install.install(lambda text: None)


def test_the_output_of_a_failed_apt_is_shown(machine: Path) -> None:
    (machine / "bin" / "apt-get").write_text("#!/bin/sh\necho E: Unable to locate package >&2\nexit 100\n")
    with pytest.raises(StackError, match=r"exit code 100:\nE: Unable to locate package"):
        install.install(lambda text: None)
    assert not (machine / "policy-rc.d").exists()


def test_a_lock_that_somebody_holds_is_waited_for(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "RETRY_SECONDS", 0.01)
    apt = machine / "bin" / "apt-get"
    busy = (
        f"if [ ! -f {machine}/tried ]; then touch {machine}/tried; echo 'E: Could not get lock x' >&2; exit 100; fi\n"
    )
    apt.write_text(apt.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + busy))
    install.install(lambda text: None)
    assert (machine / "tried").exists()


def test_an_apt_that_brings_nothing_is_not_believed(machine: Path) -> None:
    (machine / "bin" / "apt-get").write_text("#!/bin/sh\n")
    with pytest.raises(StackError, match="apt-get installed wanted, and yet wanted cannot be found"):
        install.install(lambda text: None)
