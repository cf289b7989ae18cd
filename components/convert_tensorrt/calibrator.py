"""TensorRT's own calibrator, where it still has one: it runs the network on batches and finds the ranges by entropy."""

from collections.abc import Sequence
from typing import Any

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


class Kept:
    """A calibrator that must live as long as its build, with what it holds on the GPU."""

    def __init__(self, calibrator: Any, buffers: Buffers, cache: Cache, batches: int) -> None:
        """Hold them."""
        self._calibrator, self._buffers, self._cache, self._batches = calibrator, buffers, cache, batches

    @property
    def told(self) -> dict[str, Any]:
        """What the model card says of it."""
        return {"from_cache": self._cache.taken, "batches": self._batches, "key": self._cache.digest}

    def close(self) -> None:
        """Give the memory back."""
        self._buffers.close()


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
    buffers = Buffers()
    profile = builder.create_optimization_profile()
    for name, array in feed[0].items():
        profile.set_shape(name, array.shape, array.shape, array.shape)
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_calibration_profile(profile)
    calibrator = _calibrator(feed, buffers, cache)
    config.int8_calibrator = calibrator
    return Kept(calibrator, buffers, cache, len(feed))


def _calibrator(feed: list[Batch], buffers: Buffers, cache: Cache) -> Any:
    """An instance of a class that can only be defined where TensorRT is loaded and still has its base."""

    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)
            self._left = iter(feed)
            self._given: Batch = {}

        def get_batch_size(self) -> int:
            return max((len(array) for array in feed[0].values() if array.ndim), default=1)

        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            batch = next(self._left, None)
            if batch is None:
                return None
            self._given = {name: np.ascontiguousarray(batch[name]) for name in names}
            addresses = [buffers.upload(name, array) for name, array in self._given.items()]
            buffers.wait()
            return addresses

        def read_calibration_cache(self) -> bytes | None:
            return cache.read()

        def write_calibration_cache(self, found: Any) -> None:
            cache.write(bytes(found))

    return Calibrator()
