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
        sequence_buckets: Lengths to which the model pads its input along an open second axis, before the compiled
            program: ``16 32 64``. Each length is compiled once, instead of every length that occurs; longer sequences
            are compiled at their own. Padding is with zeros, and steps that were added are cut off the outputs. Only
            for a model that ignores such steps, as with masks, which is verified for each bucket.
        warm_up: Write warm-up requests, for each bucket too.
        cache: Store the programs that XLA compiled in ``assets.extra/xla_cache``.
        tolerance: Refuse the result if an output differs by more than this fraction of its range. The default is
            0.0001, or 0.01 if the graph computes in float16, or 0.05 if it computes in bfloat16.
        max_slowdown: Refuse the result if a call takes more than so many times as long as the parent's at every batch
            size, so that no later step runs it. When not given, a slow result is written as well.
    """

    mode: Literal["whole", "clusters"] = "whole"
    batch_sizes: Annotated[tuple[str, ...], Names()] = ("1",)
    static: bool = False
    sequence_buckets: Annotated[tuple[str, ...], Names()] = ()
    warm_up: bool = True
    cache: bool = False
    tolerance: Annotated[float, Between(0, 1)] | None = None
    max_slowdown: Annotated[float, Between(1)] | None = None

    @property
    def sizes(self) -> list[int]:
        """The batch sizes as numbers, ascending, without duplicates."""
        return sorted({int(size) for size in self.batch_sizes})

    @property
    def buckets(self) -> list[int]:
        """The lengths of padded sequences as numbers, ascending, without duplicates."""
        return sorted({int(size) for size in self.sequence_buckets})

    def check(self) -> None:
        """Raise ComponentError if a size is not a whole number above zero, or ``mode`` excludes another parameter."""
        for name, sizes in (("batch_sizes", self.batch_sizes), ("sequence_buckets", self.sequence_buckets)):
            for size in sizes:
                if not size.isdigit() or not int(size):
                    raise ComponentError(f"{name}: {size!r}", "whole numbers above zero", f"pass {name} 1 32")
        if self.sequence_buckets and self.mode == "clusters":
            received = "sequence_buckets with mode='clusters'"
            expected = "mode='whole': only the input of one program is padded"
            raise ComponentError(received, expected, "pass mode='whole', or leave sequence_buckets out")
        if self.static and self.mode == "clusters":
            expected = "mode='whole': only a signature that is one program can have a fixed batch size"
            fix = "pass mode='whole', or static=False: compiled programs are reused by batch size in either mode"
            raise ComponentError("static=True with mode='clusters'", expected, fix)
