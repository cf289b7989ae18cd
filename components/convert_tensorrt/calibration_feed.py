"""What a calibrator of TensorRT is fed with, and what becomes of an error on the way."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tfopt.components.convert_tensorrt.calibration_cache import Cache
from tfopt.data.batches import Batch
from tfopt.tensorrt.device import Buffers

T = TypeVar("T")


class Feed:
    """What a calibrator gives and keeps: batches on the GPU and the cache; it must live as long as the build.

    TensorRT swallows what its callbacks raise, and takes a batch that failed for the end of them. So the first failure
    is remembered here for after the build, and nothing is given or kept any more.
    """

    def __init__(self, batches: list[Batch], buffers: Buffers, cache: Cache) -> None:
        """Hold them."""
        self.size = max((len(array) for array in batches[0].values() if array.ndim), default=1)
        self._left, self._buffers, self._cache = iter(batches), buffers, cache
        self._given: Batch = {}
        self._count = 0
        self._failure: BaseException | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What the model card says of it."""
        return {"from_cache": self._cache.taken, "batches": self._count, "key": self._cache.digest}

    def check(self) -> None:
        """Raise what a callback raised during the build."""
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Give the memory back."""
        self._buffers.close()

    def batch(self, names: Sequence[str]) -> list[int] | None:
        """The addresses of the next batch on the GPU; None after the last."""
        return self._remembering(lambda: self._upload(names))

    def cached(self) -> bytes | None:
        """What the cache has."""
        return self._remembering(self._cache.read)

    def keep(self, found: Any) -> None:
        """Write the cache."""
        self._remembering(lambda: self._cache.write(bytes(found)))

    def _remembering(self, work: Callable[[], T]) -> T | None:
        if self._failure:
            return None
        try:
            return work()
        except BaseException as error:  # an interruption too
            self._failure = error
            return None

    def _upload(self, names: Sequence[str]) -> list[int] | None:
        batch = next(self._left, None)
        if batch is None:
            return None
        self._given = {name: np.asarray(batch[name], order="C") for name in names}
        addresses = [self._buffers.upload(name, array) for name, array in self._given.items()]
        self._buffers.wait()
        self._count += 1
        return addresses
