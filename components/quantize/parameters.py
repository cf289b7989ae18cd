from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between, Names
from tfopt.training.fine_tuning_inputs import FineTuningSettings


@dataclass(frozen=True)
class QuantizationSettings:
    """Parameters of the quantization.

    Attributes:
        keep_float: Names of layers that stay in floats.
        keep_zeros: Preserve the zeros of pruned kernels.
        keep_clusters: Preserve groups of weights that share a value.
    """

    keep_float: Annotated[tuple[str, ...], Names()] = ()
    keep_zeros: bool = True
    keep_clusters: bool = True


@dataclass(frozen=True)
class Settings(FineTuningSettings, QuantizationSettings):  # the fields of the last base come first
    """Parameters of quantization-aware training.

    Attributes:
        calibration_count: Number of examples of ``train`` that set the ranges before training starts.
        seed: Seed of the order of the examples.
    """

    calibration_count: Annotated[int, Between(2, None)] = 512
    seed: int = 0
