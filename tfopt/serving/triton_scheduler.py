from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.declaration.parameters import Between


@dataclass(frozen=True)
class Scheduling:
    """Settings of Triton's scheduler for a model.

    Attributes:
        max_batch_size: For ``triton``: the largest batch that requests are combined to, if the batch size is open;
            limited to the largest batch of a TensorRT engine.
        instances: For ``triton``: number of copies of the model that run in parallel on each device.
        device: For ``triton``: where they run; ``auto`` is a GPU if there is one.
        queue_delay_us: For ``triton``: the longest time that a request waits for others to be batched with, in
            microseconds.
    """

    max_batch_size: Annotated[int, Between(1)] = 64
    instances: Annotated[int, Between(1)] = 1
    device: Literal["auto", "cpu", "gpu"] = "auto"
    queue_delay_us: Annotated[int, Between(0)] = 0
