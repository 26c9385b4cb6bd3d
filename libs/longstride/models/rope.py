"""Rotary position embedding (Su et al., arXiv 2104.09864), in the half-split layout that Llama checkpoints use."""

import torch
from torch import Tensor


def rotations(positions: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles.

    Args:
        positions: (..., T) integers.
        head_size: even.
        theta: the base of the wavelengths.

    Returns:
        Two fp32 tensors of shape (..., T, head_size).
    """
    rates = theta ** -(torch.arange(0, head_size, 2, device=positions.device, dtype=torch.float32) / head_size)
    angles = positions[..., None].float() * rates
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn each pair (i, i + head_size/2) of ``x``'s last axis by its angle; shapes broadcast."""
    left, right = x.chunk(2, -1)
    return x * cosine.to(x.dtype) + torch.cat((-right, left), -1) * sine.to(x.dtype)
