"""The optimizer's state between versions: AdamW's moments as safetensors, by parameter name.

Without it each update would start with cold moments, whose first steps are as large as the learning rate allows.
"""

from collections.abc import Iterator

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import AdamW

from longstride.training.errors import UpdateRefused

STATE = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW keeps of each parameter (without amsgrad)."""


def dump_optimizer(optimizer: AdamW, module: nn.Module) -> bytes:
    """The state of each parameter that has been updated, under ``<parameter>/<state>``."""
    tensors = {
        f"{name}/{key}": torch.as_tensor(optimizer.state[parameter][key]).detach().cpu().contiguous()
        for name, parameter in module.named_parameters()
        if parameter in optimizer.state
        for key in STATE
    }
    return save(tensors)


def restore_optimizer(optimizer: AdamW, module: nn.Module, state: bytes) -> None:
    """Put back what ``dump_optimizer`` gave.

    Raises:
        UpdateRefused: it is no such state, or that of another model.
    """
    try:
        tensors = load(state)
    except SafetensorError as error:
        raise UpdateRefused(f"the optimizer state is not safetensors: {error}") from error
    parameters = dict(module.named_parameters())
    for name, key, tensor in _entries(tensors):
        parameter = parameters.get(name)
        if parameter is None or key not in STATE or (key != "step" and tensor.shape != parameter.shape):
            raise UpdateRefused(
                f"the optimizer state's {name}/{key} {tuple(tensor.shape)} fits no parameter of the model"
            )
        optimizer.state[parameter][key] = tensor if key == "step" else tensor.to(parameter.device)


def _entries(tensors: dict[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    for entry, tensor in sorted(tensors.items()):
        name, _, key = entry.rpartition("/")
        yield name, key, tensor
