"""The two configuration files, ``task.toml`` and ``task.yaml``: what they say, as their own tools read it.

Keys that are not known are passed over, as Harbor and Terminal-Bench do. Defaults are theirs (Harbor 0.26, schema 1.4;
Terminal-Bench 0.2.18).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MEBIBYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
Seconds = Annotated[float, Field(gt=0)]
Place = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=4096)]


def _mebibytes(size: Any) -> Any:
    """``"2G"`` → 2048, as older files have it."""
    if not isinstance(size, str):
        return size
    number, unit = size.strip()[:-1], size.strip()[-1:].upper()
    try:
        return int(float(number) * MEBIBYTES[unit])
    except (KeyError, ValueError, OverflowError) as error:
        raise ValueError(f"{size[:40]!r} is no size such as 512M or 2G") from error


Size = Annotated[int, BeforeValidator(_mebibytes), Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class HarborAgent(_Section):
    """``[agent]``"""

    timeout_sec: Seconds | None = None


class HarborVerifier(_Section):
    """``[verifier]``"""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class HarborEnvironment(_Section):
    """``[environment]``"""

    docker_image: str | None = None
    os: str = "linux"
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Size | None = None
    memory: Size | None = None
    """The older spelling."""
    storage_mb: Size | None = None
    storage: Size | None = None
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    healthcheck: dict[str, Any] | None = None
    workdir: str | None = None
    network_mode: str | None = None
    allow_internet: bool | None = None


class HarborSolution(_Section):
    """``[solution]``"""

    env: dict[str, str] = {}


class HarborTask(_Section):
    """``task.toml``"""

    agent: HarborAgent = HarborAgent()
    verifier: HarborVerifier = HarborVerifier()
    environment: HarborEnvironment = HarborEnvironment()
    solution: HarborSolution = HarborSolution()
    steps: list[Any] = []


class TerminalBenchTask(_Section):
    """``task.yaml``"""

    instruction: Annotated[str, Field(min_length=1)]
    max_agent_timeout_sec: Seconds = 360.0
    max_test_timeout_sec: Seconds = 60.0
    run_tests_in_same_shell: bool = False


class ComposeBuild(_Section):
    """``build:`` of a service."""

    context: Place = "."
    dockerfile: Place = "Dockerfile"


class ComposeService(_Section):
    """A service of a ``docker-compose.yaml``, as far as an agent's container has it."""

    build: Annotated[ComposeBuild, BeforeValidator(lambda b: {"context": b} if isinstance(b, str) else b)] = (
        ComposeBuild()
    )
    environment: dict[str, Any] | list[str] = []
    working_dir: str | None = None
    volumes: list[Any] = []

    @property
    def variables(self) -> dict[str, str]:
        """Its environment, without what the harness sets."""
        pairs = (
            self.environment
            if isinstance(self.environment, dict)
            else dict(entry.partition("=")[::2] for entry in self.environment)
        )
        return {name: str(value) for name, value in pairs.items() if name != "TEST_DIR"}


class Compose(_Section):
    """``docker-compose.yaml``"""

    services: Annotated[dict[str, ComposeService], Field(min_length=1)]
