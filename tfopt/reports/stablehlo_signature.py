"""Names, dtypes and shapes of a StableHLO program, whose own inputs and outputs have positions only."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    dtype: str  # a numpy dtype name or ``bfloat16``
    shape: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class StableHLOSignature:
    """The signature of the function ``main``."""

    schema_version: ClassVar[int] = 1
    stablehlo_version: str  # of the portable artifact
    inputs: list[Tensor]  # in the order of the arguments
    outputs: list[Tensor]  # in the order of the results
