"""One way to run the same training: what `train` can be told, and what only the module or the machine can change."""

from dataclasses import dataclass
from typing import Any

PLANNED = ("precision", "jit_compile", "cache", "threads", "prefetch")  # what a plan may tell `train`


@dataclass(frozen=True)
class Setup:
    """The settings of one process.

    Attributes:
        count: Records of the split ``train``, when they were counted before; 0 else.
        vectorized: Whether ``tf.map_fn`` and ``keras.ops.map`` are replaced by their vectorized forms.
        graph: Whether a module that runs eagerly is compiled after all.
        steps_per_execution: Steps in one call; as the module compiled it when 0.
        repeated: How many times an epoch has each example.
    """

    examples: str
    module: str
    label: str
    seed: int
    deterministic: bool
    batch_size: int
    precision: str
    jit_compile: str
    cache: str
    shuffle_buffer: int
    memory_mb: int
    threads: int
    prefetch: int
    count: int = 0
    vectorized: bool = False
    graph: bool = False
    steps_per_execution: int = 0
    repeated: int = 1

    def planned(self) -> dict[str, Any]:
        """What of this a plan may tell `train`."""
        return {name: getattr(self, name) for name in PLANNED}

    def changes(self, base: "Setup") -> dict[str, Any]:
        """What of that is other than in the base."""
        return {name: value for name, value in self.planned().items() if value != getattr(base, name)}
