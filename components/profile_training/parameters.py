from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between
from tfopt.training.datasets.input_settings import InputSettings


@dataclass(frozen=True)
class OptimizationSettings:
    """Settings of the optimization, as in `train`.

    Attributes:
        label: The label feature.
        batch_size: Examples per step.
        precision: Precision of the layers.
        jit_compile: Compile the steps with XLA.
        deterministic: The same seed must give the same weights. If so, XLA is reported but not planned.
    """

    label: str = "label"
    batch_size: Annotated[int, Between(1, None)] = 64
    precision: Literal["module", "float32", "mixed_float16", "mixed_bfloat16"] = "module"
    jit_compile: Literal["module", "on", "off"] = "module"
    deterministic: bool = True


@dataclass(frozen=True)
class TrainingSettings(InputSettings, OptimizationSettings):  # the fields of the last base come first
    """Settings of the profiled training."""


@dataclass(frozen=True)
class Pace:
    """Duration and order of the measurements.

    Attributes:
        seconds: Duration of the measurement of each part, and of each setting, in seconds. Startup and warm-up are
            added; and if examples are read again in each epoch, a turn takes whole epochs.
        rounds: Number of turns; 8 is the smallest number that allows a 99 % interval.
        min_effect: A relative difference in speed too small to matter.
        seed: Seed of the weights, the order of the examples, and the order of the turns.
    """

    seconds: Annotated[float, Between(0.1)] = 6.0
    rounds: Annotated[int, Between(8, 1000)] = 12
    min_effect: Annotated[float, Between(0, 1)] = 0.05
    seed: int = 0

    @property
    def turn_seconds(self) -> float:
        """Duration of one turn, in seconds."""
        return self.seconds / self.rounds
