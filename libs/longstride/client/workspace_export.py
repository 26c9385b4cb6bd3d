"""A state of a workspace as a folder or an archive. Nothing is written, and no link points, outside of it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from longstride.client.errors import UsageProblem
from longstride.client.step_state import StepState, readable
from longstride.client.workspace_archive import writer_of
from longstride.sandbox.base import Volume
from longstride.sandbox.manifest import Manifest
from longstride.sandbox.restore import restore


def export(state: StepState, target: Path) -> list[str]:
    """Write the state to ``target``: the archive that its name ends in (``FORMATS``), else a new folder.

    Returns:
        The links that are left out because they lead outside.

    Raises:
        UsageProblem: the target exists already, cannot be written, or is an archive of a kind that is not made.
    """
    archive = writer_of(target.name)
    kept, outside = within(state.snapshot.manifest)
    narrowed = replace(state, snapshot=replace(state.snapshot, manifest=kept))
    with readable(), _told(target):
        if archive:
            with target.open("xb") as file, _whole(target):
                archive(narrowed, file)
        else:
            target.mkdir(parents=True, mode=0o700)
            with _whole(target):
                restore(narrowed.snapshot, narrowed.store, Volume(target, None, bounded=False, honest_times=True))
                target.chmod(0o755)
    return outside


def within(manifest: Manifest) -> tuple[Manifest, list[str]]:
    """The manifest without the links that could lead outside, and those."""
    outside = [path for path, target in manifest.links.items() if leads_outside(path, target)]
    links = {path: target for path, target in manifest.links.items() if path not in outside}
    return replace(manifest, links=links), sorted(outside)


def leads_outside(path: str, target: str) -> bool:
    """Whether a link can lead out of the folder that it lies in somewhere.

    ``..`` is counted at the start of a target alone, where it leaves real directories. After a name, which may be a link
    itself, nobody knows what it leaves: such a target counts as leading outside.
    """
    parts = PurePosixPath(target).parts
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or ups > path.count("/") or ".." in parts[ups:]


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise UsageProblem(f"{str(target)!r} exists already: name a new folder or file") from error
    except OSError as error:
        raise UsageProblem(f"{str(target)!r} cannot be written: {error.strerror}") from error


@contextmanager
def _whole(target: Path) -> Iterator[None]:
    """Nothing is left of what could not be written to its end."""
    try:
        yield
    except BaseException:
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        raise
