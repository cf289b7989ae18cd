"""Export of a model to LiteRT, as a child process runs it: calibrate, convert, verify."""

import logging
import re
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, SavedModel, TFLiteModel
from tfopt.artifacts.model_card import Verification
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.exact_values import count_kinds
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.verification import check_whole_inputs, compare_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.errors import ComponentError
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.parity import Parity
from tfopt.runtimes import Runtime

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tfopt.components.export_tflite.flatbuffer import FlatbufferFacts


def export(
    model: Model,
    examples: Examples | None,
    target: Path,
    parameters: TFLiteConversion,
    sensitivities: SensitivityTable | None = None,
) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    from tfopt.components.export_tflite import flatbuffer, litert_converter, quantize  # TensorFlow, only in the child

    file = target / "Format-Serving" / "tflite"
    file.parent.mkdir()
    parent = runtimes.load(model)
    check_whole_inputs(parent, examples, parameters)
    sampled, feed = None, None
    facts: ConversionFacts = {}
    trained = has_trained_ranges(model)
    calibrated = parameters.activation_bits is not None and not trained
    if examples and (calibrated or parameters.precision == "int4" or parameters.max_degradation is not None):
        sampled, description = calibration.sample_inputs(examples, parent.inputs, parameters)
        feed = list(split_batches(sampled, parent.inputs, 1))
        facts |= {"calibration": description} if calibrated else {}
    compare_file = partial(_compare, parent, examples, sampled, parameters)
    search = sensitivities, calibrated, compare_file
    with tempfile.TemporaryDirectory(dir=target, prefix=".tflite-") as folder:
        source, fixed = Path(folder, "saved_model"), Path(folder, "batch_of_one")
        keras_models.place_saved_model(model, source)
        try:
            content, quantization_facts = quantize.quantize(source, parameters, feed, *search)
        except litert_converter.OpenListError:
            if calibrated or any(spec.shape[:1] != (None,) for spec in parent.inputs.values()):
                raise
            log.warning("LiteRT has no loops over lists with an open batch size: the file takes one record a call")
            parent.inputs = {name: replace(spec, shape=(1, *spec.shape[1:])) for name, spec in parent.inputs.items()}
            litert_converter.write_with_batch_of_one(SavedModel(source), fixed)
            content, quantization_facts = quantize.quantize(fixed, parameters, feed, *search)
            facts["batch_size"] = 1
    ops = flatbuffer.describe(content)
    facts |= quantization_facts | {"ops": ops}
    file.write_bytes(content)
    try:
        facts["verified"] = _verify(parent, TFLiteModel(target), examples, sampled, ops, parameters)
    except ComponentError as error:
        if rounded := facts.get("rounded"):
            cause = f"leave integer_io out, which rounds the columns of inputs before {count_kinds(rounded)}"
            raise ComponentError(error.received, error.expected, f"{cause}; or {error.fix}") from error
        raise
    return {"precision": parameters.precision, "ranges": "trained" if trained else None, **facts}


def _compare(
    parent: Runtime, examples: Examples | None, sampled: Batch | None, parameters: TFLiteConversion, content: bytes
) -> list[Parity]:
    """Compare a file with the parent on records it was not calibrated on."""
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        Path(file.name).write_bytes(content)
        child = _load(TFLiteModel(file.name), parameters)
        return compare_held_out(parent, child, examples, sampled, parameters)


def _verify(
    parent: Runtime,
    child: TFLiteModel,
    examples: Examples | None,
    sampled: Batch | None,
    ops: "FlatbufferFacts",
    parameters: TFLiteConversion,
) -> Verification:
    if ops["flex"]:
        return {"run": False, "reason": f"needs TensorFlow's Flex delegate for {', '.join(ops['flex'])}"}
    floats = sorted(name for name, dtype in ops["io"].items() if "FLOAT" in dtype)
    if parameters.integer_io and floats:
        fix = "leave integer_io out: an op next to them has no integer kernel"
        raise ComponentError(f"{', '.join(floats)}: float in the converted file", "integer inputs and outputs", fix)
    with _load(child, parameters) as loaded:
        return verify(parent, loaded, examples, sampled, parameters, parameters.precision)


def _load(child: TFLiteModel, parameters: TFLiteConversion) -> Runtime:
    try:
        return runtimes.load(child)
    except ComponentError as error:
        if parameters.precision in ("int4", "auto") or parameters.recipe:
            received = f"layers of kinds that LiteRT does not load: {error.received}"
            fix = "choose another kind for the layer named there, by recipe; blocks of zeros have no 4-bit scale"
            raise ComponentError(received, "kinds that LiteRT supports for these layers", fix) from error
        if not parameters.sparse:
            received = (
                f"LiteRT converts the model, and does not load the file: {error.received.rpartition('/tflite: ')[2]}"
            )
            op = re.search(r"Node number \d+ \((\w+)\)", error.received)
            expressed = f"express {op[1]} with other ops in the model, such as one for each group" if op else ""
            fix = expressed or "report this with the model"
            raise ComponentError(received, "a file that LiteRT can load", fix) from error
        received = f"a sparse {parameters.precision} file, which LiteRT converts but does not load: {error.received}"
        expected = "sparse with precision float32 or float16"
        raise ComponentError(received, expected, "choose one of these, or leave sparse out") from error
