"""Settings of services that do not fit, told by the names that people set."""

import pytest

from longstride.client.errors import UsageProblem
from longstride.client.settings import ClientSettings, load
from longstride.observability.settings import TelemetrySettings
from longstride.observability.wrong_settings import WRONG, told
from services.connections import Connections
from services.model_worker.settings import ModelWorkerSettings
from services.planner.settings import PlannerSettings
from services.telemetry.settings import RecorderSettings
from services.tool_executor.settings import ToolExecutorSettings

KINDS = (
    PlannerSettings,
    ModelWorkerSettings,
    ToolExecutorSettings,
    RecorderSettings,
    TelemetrySettings,
    ClientSettings,
)


def complaint(kind, **fields: object) -> str:
    with pytest.raises(WRONG) as error:
        kind(**fields)
    return told(error.value)


@pytest.mark.parametrize(
    ("kind", "variable", "value"),
    [
        (kind, f"{kind.model_config['env_prefix']}{name}".upper(), value)
        for kind in KINDS
        for name, field in kind.model_fields.items()
        if field.annotation in (int, float, bool)
        for value in ("soon", "nonsense")
    ],
)
def test_every_number_that_is_none_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, kind, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = complaint(kind)
    assert found.startswith(f"{variable}: ")
    assert value not in found


def test_a_list_that_is_no_json_is_told_how_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSTRIDE_MODEL_WORKER_TRACKS", "slow")
    assert complaint(ModelWorkerSettings) == (
        'LONGSTRIDE_MODEL_WORKER_TRACKS: several values are written as JSON, such as ["a", "b"]'
    )


def test_a_variable_of_others_is_told_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")
    assert complaint(TelemetrySettings).startswith("OTEL_EXPORTER_OTLP_ENDPOINT: ")


def test_what_is_missing_and_what_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGSTRIDE_AMQP_URL", raising=False)
    monkeypatch.delenv("LONGSTRIDE_DATABASE_URL", raising=False)
    assert complaint(Connections) == "LONGSTRIDE_DATABASE_URL: Field required; LONGSTRIDE_AMQP_URL: Field required"
    floor = complaint(ToolExecutorSettings, pool_floor=9, pool_ceiling=1)
    assert floor == "pool_floor=9 is above pool_ceiling=1"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("soon", "Input should be a valid number, unable to parse string as a number"),
        ("-1", "Input should be greater than or equal to 0"),
    ],
)
def test_the_command_line_tells_of_its_own_as_services_do(
    monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    monkeypatch.setenv("LONGSTRIDE_PATIENCE_S", value)
    with pytest.raises(UsageProblem, match=f"^LONGSTRIDE_PATIENCE_S: {why}$"):
        load()
    assert complaint(ClientSettings) == f"LONGSTRIDE_PATIENCE_S: {why}"
