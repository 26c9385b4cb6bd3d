"""Keys and values of the positions seen so far, one row a sequence; rows may have different lengths."""

import torch
from torch import Tensor

from longstride.models.config import TransformerConfig


class KVCache:
    """Dense cache.

    A slot is written when its position is, and a query at position p reads slots 0…p only. Padding at the end of a
    short row therefore does no harm: it lies above p, and the row's next real token overwrites it.
    """

    def __init__(
        self, config: TransformerConfig, batch: int, capacity: int, dtype: torch.dtype = torch.float32
    ) -> None:
        if not 1 <= capacity <= config.context:
            raise ValueError(
                f"a cache holds 1 to {config.context} positions, the model's context; asked for {capacity}"
            )
        shape = (config.layers, batch, config.kv_heads, capacity, config.head_size)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)
        self.ids = torch.zeros(batch, capacity, dtype=torch.int64)
        """The ids themselves, for a model with taps."""

    @property
    def capacity(self) -> int:
        """Positions per row."""
        return self.ids.shape[1]

    def write_ids(self, positions: Tensor, ids: Tensor) -> None:
        """Both (B, T)."""
        if int(positions.max()) >= self.capacity:
            raise ValueError(f"position {int(positions.max())} is beyond the cache's {self.capacity}")
        self.ids.scatter_(1, positions, ids)

    def extend(self, layer: int, positions: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write (B, H, T, D) at (B, T) positions; returns views of all slots up to the last one written."""
        index = positions[:, None, :, None].expand_as(keys)
        self.keys[layer].scatter_(2, index, keys)
        self.values[layer].scatter_(2, index, values)
        end = int(positions.max()) + 1
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def select(self, rows: Tensor) -> "KVCache":
        """A cache of some rows, copied."""
        chosen = object.__new__(KVCache)
        chosen.keys, chosen.values, chosen.ids = self.keys[:, rows], self.values[:, rows], self.ids[rows]
        return chosen
