"""A decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, gated feed-forward."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from longstride.models.attention import Attention
from longstride.models.config import TransformerConfig
from longstride.models.kvcache import KVCache
from longstride.models.rope import rotations

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, arXiv 2002.05202): ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) → (..., width)."""
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """Attention, then feed-forward, each normed before and added to the stream."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        visible: Tensor | None,
        positions: Tensor,
        cache: KVCache | None,
    ) -> Tensor:
        """(B, T, width) → (B, T, width); the arguments are those of ``Attention.forward``."""
        x = x + self.attention(self.attention_norm(x), rotation, visible, positions, cache)
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Transformer(nn.Module):
    """Ids to logits. The same config and seed give the same weights."""

    def __init__(self, config: TransformerConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.ModuleList(nn.Embedding(config.vocab_size, config.width) for _ in range(config.taps))
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.RMSNorm(config.width, config.norm_eps)
        self.head = None if config.tied else nn.Linear(config.width, config.vocab_size, bias=False)
        self._initialize(torch.Generator().manual_seed(seed))

    def forward(self, ids: Tensor, *, cache: KVCache | None = None, start: Tensor | None = None) -> Tensor:
        """Logits of the next id at each position.

        Args:
            ids: (B, T) int64. Rows shorter than T are padded at the end with any id; the logits there mean nothing.
            cache: read and extended when given; without it the rows start at position 0.
            start: (B,) int64, the position of each row's first id; ``None`` is 0. Needs ``cache``.

        Returns:
            (B, T, vocab_size) fp32.

        Raises:
            ValueError: the positions go beyond the model's context or the cache.
        """
        return self.logits(self.features(ids, cache=cache, start=start))

    def features(self, ids: Tensor, *, cache: KVCache | None = None, start: Tensor | None = None) -> Tensor:
        """The normed stream before the output projection, (B, T, width); arguments as in ``forward``."""
        assert start is None or cache is not None, "start without a cache: the earlier positions are unknown"
        positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        if start is not None:
            positions = positions + start[:, None]
        if int(positions.max()) >= self.config.context:
            raise ValueError(f"position {int(positions.max())} is beyond the model's context of {self.config.context}")
        x = self._embed(ids, positions, cache)
        cosine, sine = rotations(positions, self.config.head_size, self.config.rope_theta)
        rotation = (cosine[:, None], sine[:, None])
        visible = None if cache is None else _visible(positions)
        for block in self.blocks:
            x = block(x, rotation, visible, positions, cache)
        result: Tensor = self.norm(x)
        return result

    def logits(self, features: Tensor) -> Tensor:
        """(..., width) → (..., vocab_size) fp32."""
        weight = self._table(0).weight if self.head is None else self.head.weight
        return F.linear(features, weight).float()

    @property
    def parameter_count(self) -> int:
        """Numbers that are learned."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save(self, path: Path | str, dtype: torch.dtype | None = None) -> None:
        """Write ``config.json`` and ``model.safetensors`` into the directory ``path``, made if missing; ``dtype`` rounds the weights."""
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        self.config.write(directory / CONFIG_FILE)
        tensors = {
            name: tensor.detach().to(dtype or tensor.dtype).contiguous() for name, tensor in self.state_dict().items()
        }
        # Not save_file: it makes the file readable by its owner alone, and services run under other users.
        (directory / WEIGHTS_FILE).write_bytes(save(tensors, metadata={"format": "pt"}))

    @classmethod
    def load(cls, path: Path | str) -> "Transformer":
        """Read what ``save`` wrote; the weights are fp32 whatever they were stored as.

        Raises:
            ValueError: a file is missing or broken, or its tensors are not this config's; the text names the file.
        """
        directory = Path(path)
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            if not (directory / name).is_file():
                raise ValueError(
                    f"{directory / name} is missing: a model is a directory with {CONFIG_FILE} and {WEIGHTS_FILE}"
                )
        model = cls(TransformerConfig.read(directory / CONFIG_FILE))
        try:
            tensors = {name: tensor.float() for name, tensor in load_file(directory / WEIGHTS_FILE).items()}
            model.load_state_dict(tensors)
        except (SafetensorError, RuntimeError) as error:
            raise ValueError(f"{directory / WEIGHTS_FILE} does not hold this model's weights: {error}") from error
        return model

    def _embed(self, ids: Tensor, positions: Tensor, cache: KVCache | None) -> Tensor:
        history = ids
        if cache is not None:
            cache.write_ids(positions, ids)
            history = cache.ids
        x: Tensor = self._table(0)(ids)
        for tap in range(1, self.config.taps):
            before = positions - tap
            earlier = self._table(tap)(history.gather(1, before.clamp(min=0)))
            x = x + earlier * (before >= 0)[..., None]
        return x

    def _table(self, tap: int) -> nn.Embedding:
        table = self.embeddings[tap]
        assert isinstance(table, nn.Embedding)
        return table

    def _initialize(self, generator: torch.Generator) -> None:
        residual = 0.02 / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = residual if name.endswith(("out.weight", "down.weight")) else 0.02
                nn.init.normal_(parameter, std=std, generator=generator)


def _visible(positions: Tensor) -> Tensor:
    """(B, T) query positions → (B, 1, T, S): slot s is visible at position p when s ≤ p."""
    slots = torch.arange(int(positions.max()) + 1, device=positions.device)
    return (slots <= positions[..., None])[:, None]
