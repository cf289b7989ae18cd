"""The whole of the work: share the weights, fine-tune where there is a module, write, and say what it cost."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.cluster import report
from tfopt.components.cluster.centroids import share
from tfopt.components.cluster.kernels import find_kernels
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel
from tfopt.keras_models.quantization_aware import check_not_quantized
from tfopt.keras_models.weight_constraints import Projection, add_projection, is_clustered, is_sparse
from tfopt.measurement import parity
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_outputs import output_names
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.fine_tuner import FineTuner, FineTuningSettings
from tfopt.training.user_module import UserModule

FIX = "ask for more clusters, or fine-tune: pass module=PATH and examples=PATH"

log = logging.getLogger("tfopt")


@dataclass(frozen=True, kw_only=True)
class Request(FineTuningSettings):
    """The parameters of `cluster`, under the same names."""

    clusters: int
    initialization: str
    keep_zeros: bool
    layers: list[str]


def cluster_weights(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, request: Request
) -> dict[str, Any]:
    """Write the clustered model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When nothing can be clustered, the module and the model do not fit, or the model no longer tells
            its inputs apart.
    """
    check_not_quantized(model)
    with reproducible(request.seed):
        user = UserModule(module) if module else None  # first: it registers the layers of its own
        set_seeds(request.seed)
        keras_model = keras_models.load(model)
        keras_models.check_weights(keras_model)
        kernels = find_kernels(keras_model, request.clusters, request.layers)
        _check_plain(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            rounds = FineTuner(keras_model, model, user, examples, target, request)
            keras_model, tuned = _fine_tune(keras_model, kernels, rounds, request)
            kernels = find_kernels(keras_model, request.clusters, request.layers)
        else:
            _share(kernels, request)
            tuned = {"reason": "no module: clustered after training, without fine-tuning"}
        with runtimes.load(model) as parent:
            keras_models.save(keras_model, target, output_names(model, parent, keras_model))
            verified = measure_parity(parent, KerasModel(target), examples, fix=FIX)
    found = report.describe(keras_model, kernels, before)
    for line in [*report.table(found), parity.describe_parity(verified["outputs"])]:
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


def _fine_tune(model: Any, kernels: list[Kernel], rounds: FineTuner, request: Request) -> tuple[Any, dict[str, Any]]:
    """Return the model, plain again, with the best shared weights it had, and what that took."""
    before = rounds.evaluate(model)
    learner = rounds.compile(_guarded(model, kernels, request))
    start = rounds.evaluate(learner)
    learner, facts = rounds.fine_tune(learner)
    if learner is not model:
        from tfopt.components.cluster import tfmot as toolkit

        model = rounds.compile(toolkit.strip(learner))
    return model, facts | {"float": before, "before": start, "after": rounds.evaluate(model)}


def _guarded(model: Any, kernels: list[Kernel], request: Request) -> Any:
    """Return what learns: the model whose optimizer keeps its weights shared, or one with the toolkit's wrappers."""
    sparse = [request.keep_zeros and is_sparse(kernel.values) for kernel in kernels]
    if keras_models.is_keras_2(model):
        from tfopt.components.cluster import tfmot as toolkit

        return toolkit.wrap(model, kernels, request.clusters, request.initialization, keep_zeros=any(sparse))
    _share(kernels, request)
    for kernel, zeros in zip(kernels, sparse, strict=True):
        if zeros or not kernel.left:
            add_projection(kernel.variable, Projection(kernel.values, zeros=zeros, clusters=not kernel.left))
    return model
