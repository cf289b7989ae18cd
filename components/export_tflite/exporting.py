"""The whole export, as it runs in a child process: calibrate, convert, verify."""

import tempfile
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite import calibration, verification
from tfopt.components.export_tflite.request import Request
from tfopt.execution import link_tree
from tfopt.probes import cut, probe

CHECKED = 256  # records to compare on: enough to see a broken model, few enough to take seconds
RANDOM = 36  # without examples


def export(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the file does not answer as its parent does.
    """
    from tfopt.components.export_tflite import conversion, flatbuffer  # TensorFlow, in the child alone

    serving = target / "Format-Serving"
    _place_saved_model(model, serving)
    parent = runtimes.load(model)
    feed, facts = None, {}
    if request.precision in conversion.INTEGER and examples:
        sampled, facts["calibration"] = calibration.sample(examples, parent.inputs, request)
        feed = list(cut(sampled, parent.inputs, 1))
    content = conversion.convert(serving, request, feed)
    facts["ops"] = flatbuffer.describe(content)
    (serving / "tflite").write_bytes(content)
    facts["verified"] = _verify(parent, TFLiteModel(target), examples, facts["ops"], request)
    name = f"tflite {request.precision}" + (" integer io" if request.integer_io else "")
    return {"name": name, "precision": request.precision, **facts}


def _place_saved_model(model: Model, serving: Path) -> None:
    """Link the parent's SavedModel, or export one from its Keras form."""
    if model.saved_model:
        link_tree(model.saved_model, serving)
        return
    from tfopt import keras_models

    with tempfile.TemporaryDirectory(dir=serving.parent, prefix=".keras-") as scratch:
        keras_models.save(keras_models.load(model), Path(scratch))
        Path(scratch, "Format-Serving").rename(serving)


def _verify(
    parent: runtimes.Runtime, child: TFLiteModel, examples: Examples | None, ops: dict[str, Any], request: Request
) -> dict[str, Any]:
    if ops["flex"]:
        return {"run": False, "reason": f"needs TensorFlow's Flex delegate for {', '.join(ops['flex'])}"}
    records = CHECKED if examples else RANDOM
    given, source = probe(examples, parent.inputs, records=records, seed=request.seed, seen=request.split)
    with runtimes.load(child) as loaded:
        outputs = verification.verify(parent, loaded, given, request, stored=ops["io"], real=examples is not None)
    return {"run": True, "inputs": source, "records": len(next(iter(given.values()))), "outputs": outputs}
