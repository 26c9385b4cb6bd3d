"""Where a task's sandboxes may show something."""

import pytest
from pydantic import ValidationError

from longstride.contracts.v1.environment import Environment


@pytest.mark.parametrize("path", ["/app", "/home/u/x", "/var/www", "/opt/a b", "/a/./b"])
def test_a_place_outside_the_system_may_be_linked(path: str) -> None:
    (found,) = Environment(links={path: "/workspace"}).links
    assert found == path.replace("/./", "/")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("app", "must be an absolute path"),
        ("/", "must be an absolute path"),
        ("/app/../etc", "must be an absolute path without '..'"),
        ("/etc/passwd", "lies in /etc, which a sandbox fills itself"),
        ("/usr/src/app", "lies in /usr"),
        ("/workspace/x", "lies in /workspace"),
        ("/tmp/x", "lies in /tmp"),
        ("/var/run/x", "lies in /var/run"),
        ("/a\0b", "must be an absolute path"),
    ],
)
def test_the_systems_own_places_may_not(path: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Environment(links={path: "/workspace"})


@pytest.mark.parametrize("links", [{"/app": "workspace"}, {"/app": "/workspace/../etc"}])
def test_a_target_is_an_absolute_path(links: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="must be an absolute path"):
        Environment(links=links)


@pytest.mark.parametrize("variables", [{"A-B": "x"}, {"": "x"}, {"A": "a\0b"}, {"1A": "x"}])
def test_a_variable_has_a_name_and_a_value_that_a_process_can_have(variables: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Environment(variables=variables)
