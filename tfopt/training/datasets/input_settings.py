from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.declaration.parameters import Between


@dataclass(frozen=True)
class InputSettings:
    """Settings of reading and caching a split during training.

    Attributes:
        cache: Where parsed examples are stored after the first epoch: in memory, on disk, or nowhere (``off``);
            ``auto`` is in memory if they fit.
        shuffle_buffer: Size of the shuffle buffer, in examples. When 0: all examples if they fit in memory, else
            20,000.
        memory_mb: Memory that examples may use. When 0: a quarter of the free memory.
        threads: Number of threads that read and parse. When 0: the number of cores.
        prefetch: Number of batches that are prepared in advance.
    """

    cache: Literal["auto", "memory", "disk", "off"] = "auto"
    shuffle_buffer: Annotated[int, Between(0, None)] = 0
    memory_mb: Annotated[int, Between(0, None)] = 0
    threads: Annotated[int, Between(0, None)] = 0
    prefetch: Annotated[int, Between(0, None)] = 2
