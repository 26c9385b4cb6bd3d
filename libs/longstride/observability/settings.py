"""What a person sets about telemetry, the same for every service."""

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, HttpUrl, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from longstride.observability.logs import LogFormat

Signal = Literal["otlp", "none"]
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class TelemetrySettings(BaseSettings):
    """Read from the environment: ``LONGSTRIDE_…``, and OpenTelemetry's own variable for the collector."""

    model_config = SettingsConfigDict(env_prefix="LONGSTRIDE_", populate_by_name=True, use_attribute_docstrings=True)

    otlp_endpoint: Annotated[
        HttpUrl | None, Field(validation_alias=AliasChoices("otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT"))
    ] = None
    """Base URL of an OTLP/HTTP receiver, e.g. ``http://localhost:4318``; unset: nothing is sent over OTLP."""
    traces_exporter: Annotated[
        Signal, Field(validation_alias=AliasChoices("traces_exporter", "OTEL_TRACES_EXPORTER"))
    ] = "otlp"
    metrics_exporter: Annotated[
        Signal, Field(validation_alias=AliasChoices("metrics_exporter", "OTEL_METRICS_EXPORTER"))
    ] = "otlp"
    """``none`` where Prometheus reads ``/metrics``: else it would count everything twice. See ``for_child``."""
    logs_exporter: Annotated[Signal, Field(validation_alias=AliasChoices("logs_exporter", "OTEL_LOGS_EXPORTER"))] = (
        "otlp"
    )
    """``none`` where something else collects the process's output."""
    otlp_timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Seconds for one request to the receiver."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Where ``/metrics`` and ``/healthz`` are served; 0 picks a free port; unset: nowhere."""
    metrics_host: str = "127.0.0.1"
    """The address to listen on; in a container, 0.0.0.0."""
    metrics_interval_s: Annotated[float, Field(gt=0)] = 15.0
    """Seconds between two pushes of metrics over OTLP."""
    log_format: LogFormat = "auto"
    """``auto``: human lines on a terminal, JSON lines elsewhere."""
    log_level: Level = "INFO"
    capture_content: bool = False
    """Whether prompts, answers and tool results may be span attributes. They always are in the artifact store."""
    span_queue: Annotated[int, Field(gt=0)] = 8192
    """Finished spans that wait for a slow receiver; more are dropped and counted."""
    trace_segment_steps: Annotated[int, Field(gt=0)] = 200
    """Steps after which a task's trace goes on in a new, linked one."""

    def otlp_url(self, signal: Literal["traces", "metrics", "logs"]) -> str | None:
        """The receiver's base URL for a signal; ``None``: it is not sent."""
        wanted = {"traces": self.traces_exporter, "metrics": self.metrics_exporter, "logs": self.logs_exporter}[signal]
        return str(self.otlp_endpoint).rstrip("/") if self.otlp_endpoint and wanted == "otlp" else None

    def for_child(self) -> "TelemetrySettings":
        """The settings of a child that carries out jobs: the port is its parent's, so that nobody reads the child's metrics;
        it pushes them itself where there is a receiver, also when ``none`` says that Prometheus reads the parent's."""
        read = self.metrics_port is not None
        pushed: Signal = "otlp" if read else self.metrics_exporter
        return self.model_copy(update={"metrics_port": None, "metrics_exporter": pushed})

    @field_validator("otlp_endpoint", "metrics_port", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value
