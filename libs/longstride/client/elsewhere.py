"""The environment of a process that runs in another directory: what is a path in it is as seen from here."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from longstride.client.errors import UsageProblem
from longstride.client.working_directory import REMOVED

OURS = re.compile(r"LONGSTRIDE_(?:\w+_)?(?:HOME|FILE|DIR)")
"""Our path settings, by how their names end."""
OTHERS = frozenset(
    ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
)
LISTS = frozenset(("PATH", "PYTHONPATH", "KUBECONFIG", "SSL_CERT_DIR"))
"""Several paths; an empty one is the directory itself."""
POLICY = "LONGSTRIDE_MODEL_WORKER_POLICY"


def environment_elsewhere(environment: Mapping[str, str], here: Path | None) -> dict[str, str]:
    """The same settings for a process that does not run in ``here`` (``None``: it was removed).

    Raises:
        UsageProblem: the policy has a name that none can have, or a path is seen from a directory that was removed.
    """
    return {name: _seen_from(here, name, value) if value else value for name, value in environment.items()}


def _seen_from(here: Path | None, name: str, value: str) -> str:
    if name in OTHERS or OURS.fullmatch(name):
        return str(_absolute(Path(value).expanduser(), here, name))
    if name in LISTS:
        return os.pathsep.join(_list(value.split(os.pathsep), here))
    return _policy(value, here or Path()) if name == POLICY else value


def _absolute(path: Path, here: Path | None, name: str) -> Path:
    if here is None and not path.is_absolute():
        raise UsageProblem(f"{name}: {str(path)!r} is no absolute path, and {REMOVED}")
    return (here or Path()) / path


def _list(paths: Iterable[str], here: Path | None) -> Iterator[str]:
    """Nothing is found in a directory that was removed: what is seen from it goes."""
    return (str((here or Path()) / path) for path in paths if here or Path(path).is_absolute())


def _policy(name: str, here: Path) -> str:
    from longstride.policies.base import PolicyUnavailable
    from longstride.policies.naming import found_from

    try:
        return found_from(name, here)
    except PolicyUnavailable as error:
        raise UsageProblem(f"{POLICY}: {error}") from error
