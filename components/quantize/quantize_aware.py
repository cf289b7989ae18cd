"""Quantization-aware training: add fake quantization, set ranges, fine-tune, save, and compare with the parent."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.components.quantize.layer_precisions import choose_precisions
from tfopt.components.quantize.parameters import Settings
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.keras_models.layer_graph import is_graph
from tfopt.measurement import parity
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_parity import output_names, save_as_served
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.weight_changes import loaded_reproducibly
from tfopt.value_types import JsonObject

CALIBRATION_BATCH = 64

log = logging.getLogger(__name__)


def quantize_model(
    model: KerasModel,
    examples: Examples,
    module: Path,
    target: Path,
    settings: Settings,
    sensitivities: SensitivityTable | None = None,
    teacher: Model | None = None,
) -> JsonObject:
    """Write the quantized model into the staging folder ``target`` and return the facts for its model card."""
    with loaded_reproducibly(model, module, settings.seed) as (keras_model, user):
        _check_layers(keras_model, settings.keep_float)
        with runtimes.load(model) as parent:
            output_names(model, parent, keras_model)  # raises before the training
            assert user  # a module was passed
            keep_float, bits, mix = choose_precisions(keras_model, settings, sensitivities)
            tuner = FineTuner(keras_model, model, user, examples, target, settings, settings.seed)
            with tuner.distillation(teacher or model, keras_model, settings, is_required=teacher is not None) as taught:
                trainee, tuned = _fine_tune(keras_model, tuner, settings, keep_float, bits)
            save_as_served(trainee.model, target, model, parent, keras_model)
            if keras_models.is_keras_2(trainee.model):  # the toolkit's layers cannot be loaded from a .keras file
                trainee.model.save(target / "Format-Keras" / "model.h5")
                (target / "Format-Keras" / "model.keras").unlink()
            fix = "lower the learning rate, or name layers in keep_float"
            verified = measure_parity(parent, KerasModel(target), examples, fix=fix)
    report = trainee.report() | ({"mix": mix} if mix else {})
    log.info("%s", report["summary"])
    for name, reason in report["left"].items():
        log.info("  %s stays in floats: %s", name, reason)
    log.info("%s", parity.describe_parity(verified["outputs"]))
    return {"name": "quantized", "report": report, "fine_tuned": tuned, "verified": verified, **taught}


def _check_layers(model: Any, keep_float: Sequence[str]) -> None:
    if not is_graph(model):
        received = f"model {model.name}: a subclassed model"
        fix = "call its layers in a keras.Model, or quantize after training with export_tflite precision=int8"
        raise ComponentError(received, "a Sequential or Functional model, whose graph of layers is known", fix)
    names = [layer.name for layer in model._flatten_layers()]
    for name in keep_float:
        if name not in names:
            raise ComponentError(f"keep_float: {name!r}", "names of the model's layers", nearest(name, names))


def _fine_tune(
    model: Any, tuner: FineTuner, settings: Settings, keep_float: Sequence[str], bits: Mapping[str, int]
) -> tuple[Any, JsonObject]:
    """Return the fine-tuned model with its best weights, and the facts for its model card."""
    before = tuner.evaluate(model)
    if keras_models.is_keras_2(model):
        from tfopt.components.quantize.tfmot import ToolkitTrainee as Trainee  # imports Keras 2
    else:
        from tfopt.components.quantize.fake_quant_training import Trainee  # type: ignore[assignment]
    preserved = {"zeros": settings.keep_zeros, "clusters": settings.keep_clusters}
    trainee = Trainee(model, keep_float, bits, **preserved, learned=settings.learned_scales)
    batches = tuner.sources["train"].in_order().unbatch().take(settings.calibration_count).batch(CALIBRATION_BATCH)
    trainee.observe(batches)
    start = tuner.evaluate(tuner.compile(trainee.model))
    _, facts = tuner.fine_tune(trainee.model)
    trainee.finish()
    after = tuner.evaluate(tuner.compile(trainee.model))  # the attribute may refer to another model now
    return trainee, facts | {"float": before, "before": start, "after": after}
