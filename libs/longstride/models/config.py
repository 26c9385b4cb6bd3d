"""The shape of a transformer."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class TransformerConfig:
    """A decoder in the manner of Llama; ``taps`` above 1 is ours."""

    vocab_size: int
    width: int = 128
    """Features of the residual stream."""
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    """Key and value heads; ``heads`` must be a multiple of it."""
    hidden: int = 384
    """Inner width of the gated feed-forward."""
    context: int = 2048
    """Positions that the model may be asked for."""
    taps: int = 1
    """A position's input is the sum of the embeddings of its last ``taps`` ids, each from a table of its own.
    With 2 or more, a key holds the id before it, so one attention layer can find "what followed this before" and copy it."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True
    """The output projection is the input embedding."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "layers", "heads", "kv_heads", "hidden", "context", "taps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads or self.width // self.heads % 2:
            raise ValueError(f"width {self.width} must split into {self.heads} heads of an even size")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")

    @property
    def head_size(self) -> int:
        """Features of one head."""
        return self.width // self.heads

    def write(self, path: Path) -> None:
        """Write the config as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> "TransformerConfig":
        """Read a config.

        Raises:
            ValueError: the file is not a JSON object of this config's fields; the text names the file and the field.
        """
        try:
            raw = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        known = {field.name for field in fields(cls)}
        if not isinstance(raw, dict) or set(raw) - known:
            extra = sorted(set(raw) - known) if isinstance(raw, dict) else type(raw).__name__
            raise ValueError(f"{path} is not a transformer config: unknown {extra}; known are {sorted(known)}")
        if "vocab_size" not in raw:
            raise ValueError(f"{path} lacks vocab_size")
        return cls(**raw)
