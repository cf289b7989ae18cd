"""What is calibrated on, cut as TensorRT's calibrator takes it: batches of one size, by input name."""

from collections.abc import Mapping

from tfopt.artifacts.tensor_spec import TensorSpec, batched, fixed_batch
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import count, cut
from tfopt.errors import ComponentError


def whole_batches(sampled: Batch, specs: Mapping[str, TensorSpec], size: int) -> list[Batch]:
    """Return batches of this size, or of the one the model fixes; what is left over is left out.

    Raises:
        ComponentError: When there are too few examples for one.
    """
    size = fixed_batch(specs) or size
    rows = batched(specs)
    found = [batch for batch in cut(sampled, specs, size) if all(len(batch[name]) == size for name in rows)]
    if not found:
        raise ComponentError(
            f"{count(sampled, specs)} examples to calibrate on, in batches of {size}",
            "at least one whole batch",
            "pass a smaller usual_batch, or name a larger split",
        )
    return found
