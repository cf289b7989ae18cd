"""The whole of the work: fake quantization, ranges, fine-tuning, writing, and what it cost."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.errors import ComponentError, nearest
from tfopt.keras_models import layer_graph as keras_graph
from tfopt.keras_models.quantization_aware import check_not_quantized
from tfopt.measurement import parity
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_outputs import output_names
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.fine_tuner import FineTuner, FineTuningSettings
from tfopt.training.user_module import UserModule

BATCH = 64  # of the examples that set the first ranges

log = logging.getLogger("tfopt")


@dataclass(frozen=True, kw_only=True)
class Request(FineTuningSettings):
    """The parameters of `quantize`, under the same names."""

    keep_float: list[str]
    keep_zeros: bool
    keep_clusters: bool
    calibration_count: int


def quantize_model(
    model: KerasModel, examples: Examples, module: Path, target: Path, request: Request
) -> dict[str, Any]:
    """Write the quantized model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When nothing can be quantized, or module, examples and model do not fit.
    """
    check_not_quantized(model)
    with reproducible(request.seed):
        user = UserModule(module)  # first: it registers the layers of its own
        set_seeds(request.seed)
        keras_model = keras_models.load(model)
        _check(keras_model, request.keep_float)
        with runtimes.load(model) as parent:
            names = output_names(model, parent, keras_model)
            rounds = FineTuner(keras_model, model, user, examples, target, request)
            learner, tuned = _learn(keras_model, rounds, request)
            keras_models.save(learner.model, target, names)
            if keras_models.is_keras_2(learner.model):  # the toolkit's layers cannot be read from a .keras file
                learner.model.save(target / "Format-Keras" / "model.h5")
                (target / "Format-Keras" / "model.keras").unlink()
            fix = "lower the learning rate, or name layers to keep in floats"
            verified = measure_parity(parent, KerasModel(target), examples, fix=fix)
    report = learner.report()
    for line in (report["summary"], *(f"  {name} stays in floats: {why}" for name, why in report["left"].items())):
        log.info("%s", line)
    log.info("%s", parity.describe_parity(verified["outputs"]))
    return {"name": "quantized", "report": report, "fine_tuned": tuned, "verified": verified}


def _check(model: Any, keep_float: list[str]) -> None:
    keras_models.check_weights(model)
    if not keras_graph.is_graph(model):
        raise ComponentError(
            f"model {model.name}: a subclassed model",
            "a Sequential or Functional model, whose layers can be looked through",
            "call its layers in a keras.Model, or quantize after training with export_tflite precision=int8",
        )
    known = [layer.name for layer in model._flatten_layers()]
    for name in keep_float:
        if name not in known:
            raise ComponentError(f"keep_float: {name!r}", "names of the model's layers", nearest(name, known))


def _learn(model: Any, rounds: FineTuner, request: Request) -> tuple[Any, dict[str, Any]]:
    """Return what learned, with its best weights, and how well it does before and after."""
    before = rounds.evaluate(model)
    if keras_models.is_keras_2(model):
        from tfopt.components.quantize.tfmot import ToolkitLearner as Learner
    else:
        from tfopt.components.quantize.fake_quant_training import Learner  # type: ignore[assignment]
    learner = Learner(model, request.keep_float, zeros=request.keep_zeros, clusters=request.keep_clusters)
    blocks = rounds.sources["train"].in_order().unbatch().take(request.calibration_count).batch(BATCH)
    learner.observe(blocks)
    start = rounds.evaluate(rounds.compile(learner.model))
    _, facts = rounds.fine_tune(learner.model)
    learner.finish()
    after = rounds.evaluate(rounds.compile(learner.model))  # which may be another one now
    return learner, facts | {"float": before, "before": start, "after": after}
