"""Batches for TensorRT's calibrator, and errors in its callbacks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec, batched_tensors, fixed_batch
from tfopt.components.convert_tensorrt.caches import CalibrationCache
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import count_records, split_batches
from tfopt.errors import ComponentError
from tfopt.tensorrt.device import Buffers
from tfopt.value_types import JsonObject

T = TypeVar("T")


def split_full_batches(sampled: Batch, specs: Mapping[str, TensorSpec], size: int) -> list[Batch]:
    """Split calibration inputs into batches of this size, or of the model's fixed one, and drop the remainder.

    Raises:
        ComponentError: If there are too few examples for one batch.
    """
    size = fixed_batch(specs) or size
    names = batched_tensors(specs)
    batches = [
        batch for batch in split_batches(sampled, specs, size) if all(len(batch[name]) == size for name in names)
    ]
    if not batches:
        received = f"{count_records(sampled, specs)} examples to calibrate on, in batches of {size}"
        raise ComponentError(received, "at least one whole batch", "pass a smaller usual_batch, or name a larger split")
    return batches


class CalibrationFeed:
    """The callbacks of a calibrator: batches on the GPU, and the cache. It must live as long as the build.

    TensorRT ignores exceptions in its callbacks, and takes a failed batch for the end of the data. So the first
    exception is stored until after the build, and the callbacks return nothing from then on.
    """

    def __init__(self, batches: list[Batch], buffers: Buffers, cache: CalibrationCache) -> None:
        """Store batches, GPU memory and cache."""
        self.batch_size = max((len(array) for array in batches[0].values() if array.ndim), default=1)
        self._batches, self._buffers, self._cache = iter(batches), buffers, cache
        self._uploaded: Batch = {}  # must live until the copies are done
        self._count = 0
        self._failure: BaseException | None = None

    @property
    def facts(self) -> JsonObject:
        """Metadata for the model card."""
        return {"from_cache": self._cache.hit, "batches": self._count, "key": self._cache.digest}

    def check(self) -> None:
        """Raise the exception of a callback during the build."""
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Free the memory on the GPU."""
        self._buffers.close()

    def next_batch(self, names: Sequence[str]) -> list[int] | None:
        """Upload the next batch, and return the GPU addresses of its inputs; None after the last."""
        return self._guard(lambda: self._upload(names))

    def read_cache(self) -> bytes | None:
        """Return the cached calibration, if there is one."""
        return self._guard(self._cache.read)

    def write_cache(self, calibration: Any) -> None:
        """Write the calibration to the cache."""
        self._guard(lambda: self._cache.write(bytes(calibration)))

    def _guard(self, callback: Callable[[], T]) -> T | None:
        if self._failure:
            return None
        try:
            return callback()
        except BaseException as error:  # KeyboardInterrupt too
            self._failure = error
            return None

    def _upload(self, names: Sequence[str]) -> list[int] | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        self._uploaded = {name: np.asarray(batch[name], order="C") for name in names}
        addresses = [self._buffers.upload(name, array) for name, array in self._uploaded.items()]
        self._buffers.wait()
        self._count += 1
        return addresses
