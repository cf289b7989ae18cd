"""Parameters of `compile_xla`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Names
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Settings:
    """Parameters of a compilation.

    Attributes:
        mode: ``whole`` makes one program of each signature (`jit_compile`), and is refused if XLA lacks an operation.
            With ``clusters``, TensorFlow selects the groups of operations to compile (auto-clustering) and runs the
            others as before: for models with text or lookup tables.
        batch_sizes: Expected batch sizes: each gets a warm-up request, and with `static` a signature.
        static: Add a signature of a fixed batch size for each, ``serving_default_batch_32``.
        warm_up: Write warm-up requests.
        cache: Store the programs that XLA compiled in ``assets.extra/xla_cache``.
        tolerance: Refuse the result if an output differs by more than this fraction of its range.
    """

    mode: Literal["whole", "clusters"] = "whole"
    batch_sizes: Annotated[tuple[str, ...], Names()] = ("1",)
    static: bool = False
    warm_up: bool = True
    cache: bool = False
    tolerance: Annotated[float, Between(0, 1)] = 1e-4

    @property
    def sizes(self) -> list[int]:
        """The batch sizes as numbers, ascending, without duplicates."""
        return sorted({int(size) for size in self.batch_sizes})

    def check(self) -> None:
        """Raise ComponentError if a batch size is not a whole number above zero, or ``static`` excludes ``mode``."""
        for size in self.batch_sizes:
            if not size.isdigit() or not int(size):
                raise ComponentError(f"batch_sizes: {size!r}", "whole numbers above zero", "pass batch_sizes 1 32")
        if self.static and self.mode == "clusters":
            raise ComponentError(
                "static=True with mode='clusters'",
                "mode='whole': only a signature that is one program can have a fixed batch size",
                "pass mode='whole', or static=False: compiled programs are reused by batch size in either mode",
            )
