"""int8 with a promise: NNCF leaves the layers that cost most in float, one after another, until the answers hold."""

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from tfopt.components.export_openvino import conversion
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.measurement.parity import compare, degradation
from tfopt.runtimes import Arrays, Runtime
from tfopt.runtimes.openvino import OpenVINORuntime, compiled
from tfopt.runtimes.openvino_import import untracked

with untracked():
    import nncf


def hold(
    model: Any, plain: Any, feed: list[Batch], checked: list[Batch], parent: Runtime, most: float, settings: Any
) -> tuple[Any, dict[str, Any]]:
    """Return an int8 form that degrades no more than that, and what the model card says of it.

    Layers are ranked by what each of them alone costs, and the records decide: NNCF's accuracy control.

    Args:
        model: An ``openvino.Model`` in floats.
        plain: All of it in int8.
        feed: Inputs by name, to calibrate on.
        checked: Records to measure the degradation on, one in each batch.
        parent: What the answers are compared with.
        most: The largest degradation allowed, as in `tfopt.measurement.parity.degradation`.
        settings: What NNCF is told of this model.

    Raises:
        ComponentError: When it is missed although half of the layers are left in float.
    """
    known = _Remembered(parent)

    def measure(compiled: Any, places: Iterable[int]) -> tuple[float, list[float]]:
        child, batches = OpenVINORuntime(compiled, "an int8 form"), [checked[place] for place in places]
        errors = [sum(found.mean_abs_error for found in compare(known, child, [one]).values()) for one in batches]
        return 1 - degradation(compare(known, child, batches).values()), [-error for error in errors]

    made = nncf.quantize_with_accuracy_control(
        model.clone(),
        nncf.Dataset(feed),
        nncf.Dataset(range(len(checked))),
        measure,
        max_drop=most,
        drop_type=nncf.DropType.ABSOLUTE,
        subset_size=len(feed),
        preset=settings["preset"],
        model_type=settings["model_type"],
        advanced_quantization_parameters=settings["advanced_parameters"],
    )
    with OpenVINORuntime(compiled(made), "an int8 form") as child:
        reached = degradation(compare(known, child, checked).values())
    before, left = conversion.layers_in_8_bits(plain), conversion.layers_in_8_bits(made)
    in_float = sorted(set(before) - set(left))
    if reached > most or len(in_float) > len(before) / 2:
        raise ComponentError(
            f"degradation {reached:.3g} with {len(in_float)} of {len(before)} layers left in float32",
            f"at most max_degradation={most:g} with at most half of them in float32",
            "allow more, calibrate on more examples, or choose a higher precision",
        )
    return made, {"left_in_float": in_float, "degradation": reached}


class _Remembered(Runtime):
    """The parent, asked once for each record."""

    def __init__(self, parent: Runtime) -> None:
        self.inputs, self.outputs = parent.inputs, parent.outputs
        self._parent = parent
        self._answers: dict[bytes, dict[str, NDArray[Any]]] = {}

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        key = b"".join(arrays[name].tobytes() for name in self.inputs)
        if key not in self._answers:
            self._answers[key] = self._parent.call(arrays)
        return self._answers[key]
