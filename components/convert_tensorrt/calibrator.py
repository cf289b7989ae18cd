"""TensorRT 10's entropy calibrator, which runs the network on batches to find the int8 ranges."""

from collections.abc import Sequence
from typing import Any

import tensorrt as trt

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.convert_tensorrt.caches import CalibrationCache, digest_inputs
from tfopt.components.convert_tensorrt.calibration_feed import CalibrationFeed, split_full_batches
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.tensorrt.device import Buffers


def add_calibrator(
    config: Any,
    builder: Any,
    sampled: Batch,
    specs: dict[str, TensorSpec],
    model: Model,
    parameters: TensorRTConversion,
) -> Any:
    """Add a calibrator on these inputs to a builder's configuration.

    Returns:
        The calibrator, with its ``feed``. It must live as long as the build.

    Raises:
        ComponentError: If this TensorRT has no calibrator, or there are too few examples for one batch.
    """
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        raise ComponentError(
            f"calibrator='entropy' with TensorRT {trt.__version__}",
            "TensorRT 10: later versions take ranges from the ONNX file only",
            "leave calibrator out: explicit ranges work with every version",
        )
    size = parameters.usual_batch
    batches = split_full_batches(sampled, specs, size)
    cache = CalibrationCache(
        parameters.calibration_cache,
        model=model.digest,
        examples=digest_inputs(sampled),
        batch=size,
        tensorrt=trt.__version__,
    )
    profile = builder.create_optimization_profile()
    for name, array in batches[0].items():
        profile.set_shape(name, array.shape, array.shape, array.shape)
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_calibration_profile(profile)
    config.int8_calibrator = calibrator = _create_calibrator(CalibrationFeed(batches, Buffers(), cache))
    return calibrator


def _create_calibrator(feed: CalibrationFeed) -> Any:
    # The class can only be defined where TensorRT is installed and still has its base.
    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)
            self.feed = feed

        def get_batch_size(self) -> int:
            return feed.batch_size

        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            return feed.next_batch(names)

        def read_calibration_cache(self) -> bytes | None:
            return feed.read_cache()

        def write_calibration_cache(self, cache: Any) -> None:
            feed.write_cache(cache)

    return Calibrator()
