"""How remote policies are called."""

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class RemoteSettings(BaseSettings):
    """``LONGSTRIDE_REMOTE_…`` in the environment."""

    model_config = SettingsConfigDict(env_prefix="LONGSTRIDE_REMOTE_", extra="ignore")

    url: str | None = None
    """The base URL that the key belongs to, and that ``remote`` alone means, e.g. ``https://api.openai.com/v1``."""
    api_key: SecretStr | None = None
    """Sent to the origin of ``url`` and to no other: a task may name any URL, and must not be given the key for it."""
    model: str | None = None
    """Where a policy's name has no ``#MODEL``; without both the server is asked for its only model."""
    tools: bool = True
    """Tools as function schemas; otherwise the model writes the action as JSON text, for servers without function calling."""
    context_window: int = Field(default=32_768, gt=0)
    """Tokens; the planner compacts before it is full."""
    connect_s: float = Field(default=10.0, gt=0)
    first_byte_s: float = Field(default=120.0, gt=0)
    """Until the first event; a model may think that long."""
    stall_s: float = Field(default=60.0, gt=0)
    """Between two events."""
    attempts: int = Field(default=5, ge=1)
    """Tries of one call, the first included; all within the call's own time."""
    backoff_s: float = Field(default=0.5, gt=0)
    """Before the second try; doubles each time, up to ``backoff_max_s``, with full jitter."""
    backoff_max_s: float = Field(default=20.0, gt=0)
    usd_per_million_input: float = Field(default=0.0, ge=0)
    usd_per_million_output: float = Field(default=0.0, ge=0)
    token_ids: bool = False
    """Ask for token ids and their log-probabilities (vLLM's ``return_token_ids``), and keep them as token records."""
    weights_version: int | None = Field(default=None, ge=0)
    """The version of the server's weights, for token records."""
