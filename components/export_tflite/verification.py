"""Whether the converted file answers as its parent does, and what counts as an answer gone wrong."""

from collections.abc import Mapping
from typing import Any

from tfopt.components.export_tflite.request import Request
from tfopt.errors import ComponentError
from tfopt.examples import Batch
from tfopt.parity import Parity, compare
from tfopt.probes import cut
from tfopt.runtimes import Runtime

EXACT = {"float32": 1e-4}  # the largest difference in units of the output's range
# Of the others, the least part of records that keep their class, and the least correlation where there are no classes:
# the largest difference says little of them, since a steep output moves far at some place in any lower precision.
ALIKE = {"float16": (0.95, 0.99), "dynamic": (0.5, 0.5), "int8": (0.5, 0.5), "int16x8": (0.5, 0.5)}
ADVICE = {
    "float32": "pass a larger tolerance if this is known to be harmless",
    "float16": "choose float32; values may be out of float16's range",
    "dynamic": "choose float16 or float32",
    "int8": "calibrate on more and more typical examples, or choose int16x8, dynamic or float16",
    "int16x8": "calibrate on more and more typical examples, or choose dynamic or float16",
}


def verify(
    parent: Runtime, child: Runtime, inputs: Batch, request: Request, *, stored: Mapping[str, str], real: bool
) -> dict[str, Any]:
    """Run both at batch sizes 1, 3 and 32, and return the parity of each output.

    Args:
        parent: What was converted.
        child: The converted file.
        inputs: By name.
        request: What was asked for.
        stored: The dtype of each input and output in the file itself.
        real: Whether the inputs are examples.

    Raises:
        ComponentError: When names, dtypes, shapes or a free batch were lost, or the answers are not the parent's.
    """
    _check_batch(parent, child)
    floats = sorted(name for name, dtype in stored.items() if "FLOAT" in dtype)
    if request.integer_io and floats:
        raise ComponentError(
            f"{', '.join(floats)}: float in the converted file",
            "integer inputs and outputs",
            "leave integer_io out: an op beside them has no integer kernel",
        )
    found = compare(parent, child, cut(inputs, parent.inputs, 1, 3, 32))
    for name, parity in found.items():
        _check(name, parity, request, real)
    return {name: parity.facts() for name, parity in found.items()}


def _check_batch(parent: Runtime, child: Runtime) -> None:
    for name, spec in parent.inputs.items():
        if name in child.inputs and spec.shape[:1] == (None,) and child.inputs[name].shape[:1] != (None,):
            raise ComponentError(
                f"input {name!r} became {child.inputs[name]}",
                f"a free batch size, as in {spec}",
                "report this, with the model",
            )


def _check(name: str, parity: Parity, request: Request, real: bool) -> None:
    wrong = None
    limit = EXACT.get(request.precision) if request.tolerance is None else request.tolerance
    agreement, correlation = ALIKE.get(request.precision, (0, 0))
    if parity.constant:
        wrong = "the same answer for every input", "answers that vary as the parent's do"
    elif limit is not None and parity.relative_error > limit:
        wrong = f"differs by {parity.relative_error:.2g} of the output's range", f"at most {limit:g}"
    elif limit is None and real and parity.agreement is not None:  # classes of random inputs mean little
        if parity.agreement < agreement:
            wrong = f"{parity.agreement:.0%} of the records keep their class", f"at least {agreement:.0%}"
    elif limit is None and parity.correlation is not None and parity.correlation < correlation:
        wrong = f"correlation {parity.correlation:.2f} with the parent", f"at least {correlation:g}"
    if wrong:
        received, expected = wrong
        raise ComponentError(f"{request.precision}, output {name!r}: {received}", expected, ADVICE[request.precision])
