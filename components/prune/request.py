"""What was asked for, as one value."""

from dataclasses import dataclass

from tfopt.components.prune.channels import Wanted
from tfopt.components.prune.pattern import Pattern
from tfopt.training.recovery import Recovery


@dataclass(frozen=True)
class Request:
    """The parameters of `prune`, under the same names; `channels` has those of the pattern channel alone."""

    sparsity: float
    pattern: Pattern
    schedule: str
    layers: list[str]
    label: str
    epochs: int
    recovery: Recovery
    batch_size: int
    learning_rate: float | None
    seed: int
    channels: Wanted
