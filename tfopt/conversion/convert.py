"""The steps that all conversions to another format share: checks, a child process, a summary."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from tfopt.artifacts import Examples, Model, Sensitivities
from tfopt.artifacts.formats import FORMATS
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.exact_values import describe
from tfopt.conversion.parameters import Calibration, Conversion, Minimized
from tfopt.errors import ComponentError
from tfopt.formatting import data_size, relative_size
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.processes.call_limit import CONVERSION, limit_seconds
from tfopt.processes.subprocess_call import run_in_child

UNSTABLE = 0.5  # of a range; differences of a tenth are common, since a largest value varies with the sample

log = logging.getLogger(__name__)


def check_conversion(
    model: Model,
    examples: Examples | None,
    precision: str,
    parameters: Calibration,
    formats: Sequence[str],
    *,
    calibrated: Sequence[str] = ("int8",),
    without_examples: str,
    ranges: str | None = None,
) -> bool:
    """Check model, precision and examples before any work; return True if the model already has its 8-bit ranges.

    ``formats`` can be converted, and the ``calibrated`` precisions need ranges, from examples unless the
    model has ``ranges`` (their description). The advice names a precision that works ``without_examples``.

    Raises:
        ComponentError: If one of them cannot work.
    """
    check_format(model, formats)
    ranges = "whose 8-bit ranges were trained" if has_trained_ranges(model) else ranges
    if ranges and precision != "int8":
        received = f"precision={precision!r} for {model.name}, {ranges}"
        fix = "pass precision='int8', or pass the model from before it was quantized"
        raise ComponentError(received, "precision='int8', which uses these ranges", fix)
    if precision in calibrated and not ranges:
        if examples is None:
            fix = f"pass examples=PATH, or precision={without_examples!r}, which needs none"
            raise ComponentError(f"precision={precision!r} without examples", "examples to calibrate on", fix)
        examples.split(parameters.split)
    elif parameters.calibration != type(parameters).calibration:  # its default
        received = f"calibration={parameters.calibration!r} with " + (ranges or f"precision={precision!r}")
        expected = f"precision {' or '.join(calibrated)} of a model without ranges, which is calibrated"
        raise ComponentError(received, expected, "leave calibration out")
    return bool(ranges)


def check_format(model: Model, formats: Sequence[str]) -> None:
    """Raise ComponentError unless a model has one of the formats that can be converted."""
    if model.format not in formats:
        expected = " or ".join(FORMATS[name].title for name in formats)
        raise ComponentError(f"{model.uri}: a {model.format} model", expected, "pass the model it was converted from")


def check_limit(
    precision: str,
    limit: float | None,
    precisions: Sequence[str],
    *,
    trained: bool = False,
    sensitivities: Sensitivities | None = None,
    minimize: Minimized = "size",
) -> None:
    """Raise ComponentError unless the precision is compatible with ``max_degradation``, the limit, and ``minimize``.

    One of the ``precisions`` can be raised layer by layer, unless the model has trained ranges; auto needs a limit, and
    so do sensitivities, which must be readable.
    """
    if sensitivities is not None and sensitivities.load() and limit is None:
        expected = "max_degradation, for whose search they are"
        raise ComponentError("sensitivities without max_degradation", expected, "add it, or leave sensitivities out")
    if precision == "auto" and limit is None:
        expected = "max_degradation, which decides on the precision of each layer"
        raise ComponentError(
            "precision='auto' without max_degradation", expected, "add for example max_degradation=0.01"
        )
    if minimize != "size" and precision != "auto":
        received = f"minimize={minimize!r} with precision={precision!r}"
        expected = "precision='auto', which chooses a mix"
        raise ComponentError(received, expected, "leave minimize out, or pass precision='auto'")
    if limit is not None and (precision not in precisions or trained):
        raise ComponentError(
            f"max_degradation={limit:g} with " + ("trained ranges" if trained else f"precision={precision!r}"),
            f"precision {' or '.join(precisions)} and a float model, whose layers can be left in float32",
            "leave max_degradation out, or name in quantize the layers to leave in float32"
            if trained
            else "leave it out",
        )


def is_quantized(model: Model) -> bool:
    """Return True if an ONNX file contains quantizers; operator names are plain text in the file."""
    return bool(model.format == "onnx" and model.onnx and b"QuantizeLinear" in model.onnx.read_bytes())


def convert_in_child(
    convert: Callable[..., ConversionFacts],
    model: Model,
    examples: Examples | None,
    converted: Model,
    parameters: Conversion,
    sensitivities: Sensitivities | None = None,
) -> None:
    """Convert a model in a child process, and add the metadata that ``convert`` returns to those of the output.

    ``convert`` is called with the model, the examples, the output's folder and the parameters, and with a table of the
    ``sensitivities`` by this name if there are any.

    Raises:
        ComponentError: That of ``convert``, or one that describes how its process died.
    """
    name = converted.metadata["name"]
    log.info("converting %s to %s", model.name, name)
    from tfopt.conversion.core_model import convert_model  # imports NumPy
    from tfopt.conversion.mixes.sensitivity_table import SensitivityTable

    if sensitivities is not None:
        convert = partial(convert, sensitivities=SensitivityTable(sensitivities.load()))

    size = sum(file.stat().st_size for file in model.payload())
    records = parameters.calibration_count if isinstance(parameters, Calibration) else 0
    limit_s = CONVERSION * limit_seconds(size, records)  # converters compute constants, with loops
    arguments = convert, model, examples, converted.path, parameters
    facts: ConversionFacts = run_in_child(convert_model, *arguments, doing=f"converting to {name}", limit_s=limit_s)
    converted.metadata |= facts
    if float_part := facts.get("float_part"):
        log.info("%s: %s", name, describe(float_part))
    for warning in facts["verified"].get("warnings", ()):
        log.warning("%s: %s", name, warning)
    log.info("%s", summarize(converted))


def summarize(converted: Model) -> str:
    """Return one line with name, size and parity of a converted model; if it grew, its size in float32."""
    from tfopt.measurement.parity import describe_parity  # imports NumPy

    facts, files = cast(ConversionFacts, converted.metadata), type(converted)(converted.path).payload()
    verified, size = facts["verified"], sum(file.stat().st_size for file in files)
    float32, growth = facts.get("float32_bytes", size), ""
    if size > 1.005 * float32:  # as `relative_size` rounds; loops stay in float, and scales take place
        growth = f" ({relative_size(size, float32)} than in float32: {data_size(float32)})"
    parity = describe_parity(verified["outputs"]) if verified["run"] else f"not run: {verified['reason']}"
    stability: Mapping[str, Any] = facts.get("stability") or {}
    name, difference = stability.get("least_stable"), stability.get("largest_difference", 0.0)
    warning = f"; the range of {name} differs by {difference:.0%} on half of the examples: calibrate on more"
    return (
        f"{converted.metadata['name']}: {data_size(size)}{growth}, {parity}{warning if difference > UNSTABLE else ''}"
    )
