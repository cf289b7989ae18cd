"""What was asked for, as one value."""

from dataclasses import dataclass

from tfopt.components.prune.channels.selection import Wanted
from tfopt.components.prune.pattern import Pattern
from tfopt.training.fine_tuner import FineTuningSettings


@dataclass(frozen=True, kw_only=True)
class Request(FineTuningSettings):
    """The parameters of `prune`, under the same names; `channels` has those of the pattern channel alone."""

    sparsity: float
    pattern: Pattern
    schedule: str
    layers: list[str]
    channels: Wanted
