"""TensorRT's own calibrator, where it still has one: it runs the network on batches and finds the ranges by entropy."""

from collections.abc import Sequence
from typing import Any

import tensorrt as trt

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.convert_tensorrt.batches import whole_batches
from tfopt.components.convert_tensorrt.calibration_cache import Cache, content
from tfopt.components.convert_tensorrt.calibration_feed import Feed
from tfopt.components.convert_tensorrt.request import Request
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.tensorrt.device import Buffers


def calibrate(
    config: Any, builder: Any, sampled: Batch, specs: dict[str, TensorSpec], model: Model, request: Request
) -> Any:
    """Tell a builder's configuration to find int8 ranges on these inputs.

    Returns:
        The calibrator, which must live as long as the build, with its ``feed``.

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
    batches = whole_batches(sampled, specs, size)
    cache = Cache(
        request.calibration_cache, model=model.digest, examples=content(sampled), batch=size, tensorrt=trt.__version__
    )
    profile = builder.create_optimization_profile()
    for name, array in batches[0].items():
        profile.set_shape(name, array.shape, array.shape, array.shape)
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_calibration_profile(profile)
    config.int8_calibrator = calibrator = _calibrator(Feed(batches, Buffers(), cache))
    return calibrator


def _calibrator(feed: Feed) -> Any:
    """An instance of a class that can only be defined where TensorRT is loaded and still has its base."""

    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)
            self.feed = feed

        def get_batch_size(self) -> int:
            return feed.size

        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            return feed.batch(names)

        def read_calibration_cache(self) -> bytes | None:
            return feed.cached()

        def write_calibration_cache(self, found: Any) -> None:
            feed.keep(found)

    return Calibrator()
