"""The whole of the work: share the weights, fine-tune where there is a module, write, and say what it cost."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import keras_models, parity, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.cluster import report
from tfopt.components.cluster.centroids import share
from tfopt.components.cluster.kernels import find_kernels
from tfopt.cost import cost
from tfopt.errors import ComponentError
from tfopt.kernels import Kernel
from tfopt.served import output_names
from tfopt.shared_weights import Projection, is_clustered, is_sparse, keep
from tfopt.trained_ranges import check_none
from tfopt.training.learning import learn
from tfopt.training.recovery import SECOND, Recovery, SecondRound
from tfopt.training.reproducible import draw_from, reproducible
from tfopt.training.tuning import compile_like, scores, sources_of
from tfopt.training.user_module import UserModule

FIX = "ask for more clusters, or fine-tune: pass module=PATH and examples=PATH"

log = logging.getLogger("tfopt")


@dataclass(frozen=True)
class Request:
    """What was asked for, under the component's names."""

    clusters: int
    initialization: str
    keep_zeros: bool
    layers: list[str]
    label: str
    epochs: int
    recovery: Recovery
    batch_size: int
    learning_rate: float | None
    seed: int


def cluster_weights(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, request: Request
) -> dict[str, Any]:
    """Write the clustered model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When nothing can be clustered, the module and the model do not fit, or the model no longer tells
            its inputs apart.
    """
    check_none(model)
    with reproducible(request.seed):
        user = UserModule(module) if module else None  # first: it registers the layers of its own
        draw_from(request.seed)
        keras_model = keras_models.load(model)
        keras_models.check_weights(keras_model)
        kernels = find_kernels(keras_model, request.clusters, request.layers)
        _check_plain(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            keras_model, tuned = _fine_tune(keras_model, model, kernels, user, examples, target, request)
            kernels = find_kernels(keras_model, request.clusters, request.layers)
        else:
            _share(kernels, request)
            tuned = {"reason": "no module: clustered after training, without fine-tuning"}
        with runtimes.load(model) as parent:
            keras_models.save(keras_model, target, output_names(model, parent, keras_model))
            verified = cost(parent, KerasModel(target), examples, fix=FIX)
    found = report.describe(keras_model, kernels, before)
    for line in [*report.table(found), parity.in_words(verified["outputs"])]:
        log.info("%s", line)
    return {"name": f"clustered {request.clusters}", "report": found, "fine_tuned": tuned, "verified": verified}


def _check_plain(kernels: list[Kernel]) -> None:
    """Refuse a model that came without a card and was clustered all the same."""
    done = [kernel.path for kernel in kernels if not kernel.left and is_clustered(kernel.values)]
    if len(done) == sum(kernel.left is None for kernel in kernels):
        raise ComponentError(
            f"{', '.join(done[:5])}: weights that are shared already",
            "a model that was not clustered",
            "give the model from before it was clustered",
        )


def _share(kernels: list[Kernel], request: Request) -> None:
    for place, kernel in enumerate(kernels):
        if kernel.left is None:
            zeros = request.keep_zeros and is_sparse(kernel.values)
            seed = request.seed + place
            kernel.variable.assign(
                share(kernel.values, request.clusters, request.initialization, keep_zeros=zeros, seed=seed)
            )


def _fine_tune(
    model: Any,
    given: KerasModel,
    kernels: list[Kernel],
    user: UserModule,
    examples: Examples,
    folder: Path,
    request: Request,
) -> tuple[Any, dict[str, Any]]:
    """Return the model, plain again, with the best shared weights it had, and what that took."""
    compile_like(model, user, request.learning_rate)
    sources = sources_of(model, examples, request.label, held_out=request.recovery.epochs > 0)
    before = scores(model, sources)
    second = SecondRound(request.recovery, given, examples, model, sources)
    learner = _guarded(model, kernels, request)
    compile_like(learner, user, request.learning_rate)
    start = scores(learner, sources)

    def tuned(learner: Any, folder: Path, epochs: int, seed: int) -> dict[str, Any]:
        size = request.batch_size
        return learn(learner, user, sources, folder, epochs=epochs, batch_size=size, patience=epochs, seed=seed)

    def again(learner: Any) -> tuple[Any, dict[str, Any]]:
        compile_like(learner, user, request.learning_rate)  # the optimizer from its beginning
        return learner, tuned(learner, folder / SECOND, request.recovery.epochs, request.seed + 1)

    history = tuned(learner, folder, request.epochs, request.seed)
    learner, later, recovery = second.run(learner, again)
    history = later or history
    if learner is not model:
        from tfopt.components.cluster import toolkit

        model = toolkit.strip(learner)
        compile_like(model, user, request.learning_rate)
    facts = {"best_epoch": history["best_epoch"], "epochs": len(history["epochs"])}
    facts |= {"float": before, "before": start, "after": scores(model, sources)}
    return model, facts | ({"recovery": recovery} if recovery else {})


def _guarded(model: Any, kernels: list[Kernel], request: Request) -> Any:
    """Return what learns: the model whose optimizer keeps its weights shared, or one with the toolkit's wrappers."""
    sparse = [request.keep_zeros and is_sparse(kernel.values) for kernel in kernels]
    if keras_models.is_keras_2(model):
        from tfopt.components.cluster import toolkit

        return toolkit.wrap(model, kernels, request.clusters, request.initialization, keep_zeros=any(sparse))
    _share(kernels, request)
    for kernel, zeros in zip(kernels, sparse, strict=True):
        if zeros or not kernel.left:
            keep(kernel.variable, Projection(kernel.values, zeros=zeros, clusters=not kernel.left))
    return model
