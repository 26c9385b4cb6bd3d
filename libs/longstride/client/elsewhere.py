"""The environment of a process that runs in another directory: what is a path in it is as seen from here."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from longstride.client.errors import UsageProblem

OURS = re.compile(r"LONGSTRIDE_(?:\w+_)?(?:HOME|FILE|DIR)")
"""Our path settings, by how their names end."""
OTHERS = frozenset(
    ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
)
LISTS = frozenset(("PATH", "PYTHONPATH", "KUBECONFIG", "SSL_CERT_DIR"))
"""Several paths; an empty one is the directory itself."""
POLICY = "LONGSTRIDE_MODEL_WORKER_POLICY"


def environment_elsewhere(environment: Mapping[str, str], here: Path) -> dict[str, str]:
    """The same settings for a process that does not run in ``here``.

    Raises:
        UsageProblem: the policy has a name that none can have.
    """
    return {name: _seen_from(here, name, value) if value else value for name, value in environment.items()}


def _seen_from(here: Path, name: str, value: str) -> str:
    if name in OTHERS or OURS.fullmatch(name):
        return str(here / Path(value).expanduser())
    if name in LISTS:
        return os.pathsep.join(str(here / path) for path in value.split(os.pathsep))
    return _policy(value, here) if name == POLICY else value


def _policy(name: str, here: Path) -> str:
    from longstride.policies.base import PolicyUnavailable
    from longstride.policies.naming import found_from

    try:
        return found_from(name, here)
    except PolicyUnavailable as error:
        raise UsageProblem(f"{POLICY}: {error}") from error
