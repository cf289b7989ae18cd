"""The whole of the work: fake quantization, ranges, fine-tuning, writing, and what it cost."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import keras_graph, keras_models, parity, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.cost import cost
from tfopt.errors import ComponentError, nearest
from tfopt.served import output_names
from tfopt.trained_ranges import check_none
from tfopt.training.learning import learn
from tfopt.training.recovery import SECOND, Recovery, SecondRound
from tfopt.training.reproducible import draw_from, reproducible
from tfopt.training.tuning import compile_like, scores, sources_of
from tfopt.training.user_module import UserModule

BATCH = 64  # of the examples that set the first ranges

log = logging.getLogger("tfopt")


@dataclass(frozen=True)
class Request:
    """What was asked for, under the component's names."""

    keep_float: list[str]
    keep_zeros: bool
    keep_clusters: bool
    label: str
    epochs: int
    recovery: Recovery
    batch_size: int
    learning_rate: float | None
    calibration_count: int
    seed: int


def quantize_model(
    model: KerasModel, examples: Examples, module: Path, target: Path, request: Request
) -> dict[str, Any]:
    """Write the quantized model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When nothing can be quantized, or module, examples and model do not fit.
    """
    check_none(model)
    with reproducible(request.seed):
        user = UserModule(module)  # first: it registers the layers of its own
        draw_from(request.seed)
        keras_model = keras_models.load(model)
        _check(keras_model, request.keep_float)
        with runtimes.load(model) as parent:
            names = output_names(model, parent, keras_model)
            learner, tuned = _learn(keras_model, model, user, examples, target, request)
            keras_models.save(learner.model, target, names)
            if keras_models.is_keras_2(learner.model):  # the toolkit's layers cannot be read from a .keras file
                learner.model.save(target / "Format-Keras" / "model.h5")
                (target / "Format-Keras" / "model.keras").unlink()
            fix = "lower the learning rate, or name layers to keep in floats"
            verified = cost(parent, KerasModel(target), examples, fix=fix)
    report = learner.report()
    for line in (report["summary"], *(f"  {name} stays in floats: {why}" for name, why in report["left"].items())):
        log.info("%s", line)
    log.info("%s", parity.in_words(verified["outputs"]))
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


def _learn(
    model: Any, given: KerasModel, user: UserModule, examples: Examples, folder: Path, request: Request
) -> tuple[Any, dict[str, Any]]:
    """Return what learned, with its best weights, and how well it does before and after."""
    compile_like(model, user, request.learning_rate)
    sources = sources_of(model, examples, request.label, held_out=request.recovery.epochs > 0)
    before = scores(model, sources)
    second = SecondRound(request.recovery, given, examples, model, sources)
    if keras_models.is_keras_2(model):
        from tfopt.components.quantize.toolkit import ToolkitLearner as Learner
    else:
        from tfopt.components.quantize.learner import Learner  # type: ignore[assignment]
    learner = Learner(model, request.keep_float, zeros=request.keep_zeros, clusters=request.keep_clusters)
    blocks = sources["train"].in_order().unbatch().take(request.calibration_count).batch(BATCH)
    learner.observe(blocks)
    compile_like(learner.model, user, request.learning_rate)
    start = scores(learner.model, sources)

    def tuned(model: Any, folder: Path, epochs: int, seed: int) -> dict[str, Any]:
        size = request.batch_size
        return learn(model, user, sources, folder, epochs=epochs, batch_size=size, patience=epochs, seed=seed)

    def again(model: Any) -> tuple[Any, dict[str, Any]]:
        compile_like(model, user, request.learning_rate)  # the optimizer from its beginning
        return model, tuned(model, folder / SECOND, request.recovery.epochs, request.seed + 1)

    history = tuned(learner.model, folder, request.epochs, request.seed)
    _, later, recovery = second.run(learner.model, again)
    history = later or history
    learner.finish()
    compile_like(learner.model, user, request.learning_rate)  # which may be another one now
    after = scores(learner.model, sources)
    facts = {"best_epoch": history["best_epoch"], "epochs": len(history["epochs"])}
    facts |= {"float": before, "before": start, "after": after}
    return learner, facts | ({"recovery": recovery} if recovery else {})
