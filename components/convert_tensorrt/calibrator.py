"""TensorRT's own calibrator, where it still has one: it runs the network on batches and finds the ranges by entropy."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorrt as trt

from tfopt.artifacts import Model
from tfopt.components.convert_tensorrt.batches import whole_batches
from tfopt.components.convert_tensorrt.calibration_cache import Cache, content
from tfopt.components.convert_tensorrt.request import Request
from tfopt.errors import ComponentError
from tfopt.examples import Batch
from tfopt.runtimes import TensorSpec
from tfopt.tensorrt.device import Buffers

T = TypeVar("T")


class Kept:
    """What a calibrator gives and keeps; it must live as long as the build.

    TensorRT swallows what its callbacks raise, and takes a batch that failed for the end of them. So the first failure
    is remembered here for after the build, and nothing is given or kept any more.
    """

    def __init__(self, feed: list[Batch], buffers: Buffers, cache: Cache) -> None:
        """Hold them."""
        self.size = max((len(array) for array in feed[0].values() if array.ndim), default=1)
        self.calibrator: Any = None
        self._left, self._buffers, self._cache = iter(feed), buffers, cache
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


def calibrate(
    config: Any, builder: Any, sampled: Batch, specs: dict[str, TensorSpec], model: Model, request: Request
) -> Kept:
    """Tell a builder's configuration to find int8 ranges on these inputs.

    Raises:
        ComponentError: When this TensorRT has no calibrator, or there are too few examples for one batch.
    """
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        raise ComponentError(
            f"calibrator='entropy' with TensorRT {trt.__version__}",
            "TensorRT 10: later ones take ranges from the ONNX file only",
            "leave calibrator out: explicit ranges work with every version",
        )
    size = request.usual_batch
    feed = whole_batches(sampled, specs, size)
    cache = Cache(
        request.calibration_cache, model=model.digest, examples=content(sampled), batch=size, tensorrt=trt.__version__
    )
    profile = builder.create_optimization_profile()
    for name, array in feed[0].items():
        profile.set_shape(name, array.shape, array.shape, array.shape)
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_calibration_profile(profile)
    kept = Kept(feed, Buffers(), cache)
    kept.calibrator = _calibrator(kept)
    config.int8_calibrator = kept.calibrator
    return kept


def _calibrator(kept: Kept) -> Any:
    """An instance of a class that can only be defined where TensorRT is loaded and still has its base."""

    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return kept.size

        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            return kept.batch(names)

        def read_calibration_cache(self) -> bytes | None:
            return kept.cached()

        def write_calibration_cache(self, found: Any) -> None:
            kept.keep(found)

    return Calibrator()
