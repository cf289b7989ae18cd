"""What was asked of `compile_xla`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wish:
    """The parameters of the component, checked; see there.

    Attributes:
        whole: Whether each signature is one program, rather than groups of operations.
        sizes: Batch sizes, ascending.
        static: Whether each size gets a signature.
        warm_up: Whether each size gets a warm-up request.
        cache: Whether what was compiled is packed.
        tolerance: Of an output's range.
    """

    whole: bool
    sizes: list[int]
    static: bool
    warm_up: bool
    cache: bool
    tolerance: float
