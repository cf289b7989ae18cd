from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Names
from tfopt.conversion.parameters import Calibration
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

OPERATIONS = ("Conv2D", "DepthwiseConv2dNative", "MatMul")


@dataclass(frozen=True, kw_only=True)
class GraphQuantization(Calibration):
    """Quantization of a graph.

    Attributes:
        operations: The TensorFlow operations that are quantized, if they have constant weights.
        reduce_range: Leave one bit of the weights unused. An x86 CPU without VNNI adds two products in 16 bits, where
            products of 8-bit weights overflow. ``auto`` does so if this machine has such a CPU; pass ``on`` or ``off``
            if the model will run on another kind.
    """

    operations: Annotated[tuple[str, ...], Names()] = OPERATIONS
    reduce_range: Literal["auto", "on", "off"] = "auto"

    def check(self) -> None:
        """Raise ComponentError if an operation cannot be quantized."""
        for name in self.operations:
            if name not in OPERATIONS:
                expected = f"some of {', '.join(OPERATIONS)}"
                raise ComponentError(f"operations: {name!r}", expected, nearest(name, OPERATIONS))
