"""Grouped-query causal self-attention with rotary positions."""

import torch.nn.functional as F
from torch import Tensor, nn

from longstride.models.config import TransformerConfig
from longstride.models.kvcache import KVCache
from longstride.models.rope import rotate


class Attention(nn.Module):
    """Queries, keys and values from one stream; heads share keys and values where ``kv_heads < heads``."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        kv_width = config.kv_heads * config.head_size
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, kv_width, bias=False)
        self.value = nn.Linear(config.width, kv_width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        visible: Tensor | None,
        positions: Tensor,
        cache: KVCache | None,
    ) -> Tensor:
        """(B, T, width) → (B, T, width).

        Args:
            x: the normed stream.
            rotation: cosine and sine, broadcastable to (B, heads, T, head_size).
            visible: (B, 1, T, S) true where a query may read a slot; ``None``: causal within ``x``.
            positions: (B, T).
            cache: written and read when given.
        """
        queries = rotate(self._split(self.query(x)), *rotation)
        keys, values = rotate(self._split(self.key(x)), *rotation), self._split(self.value(x))
        if cache is not None:
            keys, values = cache.extend(self.layer, positions, keys, values)
        grouped = self.config.kv_heads < self.config.heads
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, is_causal=visible is None, enable_gqa=grouped
        )
        result: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.config.head_size).transpose(1, 2)
