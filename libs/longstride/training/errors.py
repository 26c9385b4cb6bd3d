"""What the training boundary refuses; trying again with the same input would end the same way."""


class UpdateRefused(ValueError):
    """The update cannot be made from this batch and base; nothing was published."""


class WeightsRefused(ValueError):
    """The manifest or its files are not the weights that were asked for."""
