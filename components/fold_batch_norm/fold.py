"""Folding of one model: plan, rebuild or rewrite, save, compare, report."""

import logging
from contextlib import nullcontext
from pathlib import Path

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.model_card import Verification
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDING, NORMALIZING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.matching.batch_norms import batch_norms, layer_before, why_left, without_scopes
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import TOLERANCE, Comparison, equal_signatures, tolerance_of, why_no_special_values
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import EMPTY, EXTREMES, IEEE
from tfopt.keras_models.batch_norm_plan import FoldResult, Plan, load_foldable, make_plan
from tfopt.keras_models.layer_graph import Layer, calls, is_graph, rebuild
from tfopt.measurement.parity import describe_parity
from tfopt.runtimes import Runtime
from tfopt.runtimes.keras_parity import output_names
from tfopt.saved_models.freezer import CannotFreezeError
from tfopt.saved_models.saved_model import read
from tfopt.saved_models.signature_functions import share_signatures
from tfopt.serving.verified_write import copy_assets, write_verified
from tfopt.storage.staging import link_tree
from tfopt.value_types import JsonObject

PER_KERNEL, AT_MOST = 1e-5, 1e-4  # of the output's range; rounding errors grow in the layers that follow
LOGGED = 5  # batch norms that stay
FIX = (
    "pass a larger tolerance if that is harmless, as with half precision, or in a network whose own rounding errors "
    "are as large"
)

log = logging.getLogger(__name__)


def fold(model: SavedModel, target: Path, examples: Examples | None, tolerance: float | None) -> JsonObject:
    """Write the folded model into the staging folder ``target``, and return metadata for the model card."""
    if model.keras is None:
        return _fold_graph(model, target, examples, tolerance)
    parent = runtimes.load(model)
    keras_model = load_foldable(model, parent.inputs)
    if keras_model is None:
        return _fold_graph(model, target, examples, tolerance)
    keras_models.check_weights(keras_model)
    plan = make_plan(keras_model)
    summary = _log(plan.results)
    if not plan.folded:
        return _unchanged(model, target, plan.results, summary, keras_model)
    names = output_names(model, parent, keras_model)
    keras_models.save(rebuild_folded(keras_model, plan), target, names)
    copy_assets(model, target / "Format-Serving")
    kernels = sum(len(weight.shape) > 1 for weight in keras_model.weights)
    dtypes = {getattr(layer, "compute_dtype", None) for layer in keras_model._flatten_layers()}
    default = max([min(PER_KERNEL * kernels, AT_MOST), *(TOLERANCE[name] for name in TOLERANCE if name in dtypes)])
    allowed = default if tolerance is None else tolerance
    verified = _verify(model, parent, SavedModel(target), examples, allowed)
    log.info("%s", describe_parity(verified["outputs"]))
    return {**_facts(plan.results, summary), "verified": verified}


def rebuild_folded(model: Layer, plan: Plan) -> Layer:
    """Return the model without the batch norms that the plan folds; the argument is not changed.

    A batch norm that gives an output its name is replaced by a linear Activation of that name.
    """
    producers = {id(tensor): call.layer for call in calls(model) for tensor in call.outputs}
    named = {id(producers[id(tensor)]) for tensor in model.outputs if id(tensor) in producers}
    new_layers: dict[int, Layer] = {}

    def substitute(layer: Layer) -> Layer | None:
        if id(layer) in plan.folded and id(layer) not in named:
            return None
        if id(layer) not in new_layers:
            new_layers[id(layer)] = new_layer(layer)
        return new_layers[id(layer)]

    def new_layer(layer: Layer) -> Layer:
        if id(layer) in plan.folded:
            config = layer.get_config()
            linear = keras_models.library(layer).layers.Activation
            return linear("linear", name=layer.name, dtype=config["dtype"])
        if id(layer) in plan.weights:
            return type(layer).from_config({**layer.get_config(), "use_bias": True})
        if is_graph(layer) and any(id(inner) in plan.folded for inner in layer._flatten_layers()):
            return rebuild(layer, substitute)
        return layer

    result = rebuild(model, substitute)
    for key, weights in plan.weights.items():
        new_layers[key].set_weights(weights)  # Keras converts them to the dtypes of the layer
    return result


def _fold_graph(model: SavedModel, target: Path, examples: Examples | None, tolerance: float | None) -> JsonObject:
    try:
        frozen = share_signatures(read(model.saved_model or model.path, state=True), model.signature)
    except CannotFreezeError as refusal:  # it was loaded before: damaged models are not passed through
        log.info("%s is passed through unchanged: %s", model.name, refusal.received)
        reason = f"it has no Keras form, and its graph cannot be frozen: {refusal.received}"
        return _unchanged(model, target, [], reason)
    child, results = _fold_frozen(frozen)
    summary = _log(results)
    if all(result.refused for result in results):
        return _unchanged(model, target, results, summary)
    if difference := _special_difference(model, frozen, child, examples, tolerance):
        log.info("%s is passed through unchanged: %s", model.name, difference)
        return _unchanged(model, target, [], f"the folded graph differs from the model: {difference}")
    verified = write_verified(model, child, target, examples, tolerance, what="folded", fix=FIX)
    log.info("%s", describe_parity(verified["outputs"]))
    return {**_facts(results, summary), "verified": verified}


def _fold_frozen(frozen: Frozen) -> tuple[Frozen, list[FoldResult]]:
    """Return a frozen model with its batch norms folded, and the result for each batch norm.

    Batch norms are searched after constants are folded, because Keras 3 exports each as eight operations.
    """
    plain, report = optimize(frozen, NORMALIZING, Report()), Report()
    before = batch_norms(graph_of(plain))
    child = optimize(plain, FOLDING, report)
    graph = graph_of(child)
    remaining = batch_norms(graph)
    results: dict[str, FoldResult] = {}
    for name in before:
        layer = without_scopes(name)  # each signature calls it, and Keras writes the default one twice
        last = name if name in remaining else layer_before(graph, name)  # a batch norm itself, if a law only moved it
        if last in remaining:
            results[layer] = FoldResult(layer, refused=without_scopes(why_left(graph, remaining[last], report)))
        elif layer not in results:
            results[layer] = FoldResult(layer, folded_into=without_scopes(last))
    return child, list(results.values())


def _special_difference(
    model: SavedModel, parent: Frozen, child: Frozen, examples: Examples | None, tolerance: float | None
) -> str | None:
    """Return how the outputs differ on NaN, infinities, zeros, denormals, extremes or no records; None if they do not.

    On the largest floats they may: folded layers round at other places, so that one form may overflow (ADR 40).
    """
    if why_no_special_values(parent):
        return None
    comparison = Comparison(
        *(parent.signatures, lambda key: FrozenRuntime(parent, key), examples, model.signature),
        special=True,
        equal=equal_signatures(parent, model.signature),
    )
    allowed = tolerance_of(child) if tolerance is None else tolerance
    kinds = (IEEE, EXTREMES, EMPTY)
    lines = comparison.special_differences(lambda key: FrozenRuntime(child, key), kinds, allowed)
    return lines[0] if lines else None


def _facts(results: list[FoldResult], summary: str) -> JsonObject:
    report = {"summary": summary, "batch_norms": [result.facts() for result in results]}
    return {"name": "folded", "folded": sum(result.refused is None for result in results), "report": report}


def _log(results: list[FoldResult]) -> str:
    """Log the number of folded batch norms and the reasons of some that stay; return the former as text."""
    refused = [result for result in results if result.refused]
    summary = f"{len(results) - len(refused)} of {len(results)} batch norms folded" if results else "no batch norms"
    log.info("%s", summary)
    for result in refused[:LOGGED]:
        log.info("  %s stays: %s", result.batch_norm, result.refused)
    if len(refused) > LOGGED:
        log.info("  %d more stay: see report in the model card", len(refused) - LOGGED)
    return summary


def _unchanged(
    model: SavedModel, target: Path, results: list[FoldResult], reason: str, keras_model: Layer | None = None
) -> JsonObject:
    """Pass the model through unchanged, by links; export it first if it is only a Keras file."""
    if model.saved_model is None:
        keras_models.save(keras_model, target)
    elif model.saved_model == model.path:
        keras_models.place_saved_model(model, target / "Format-Serving")
    else:
        for form in model.path.glob("Format-*"):
            link_tree(form, target / form.name)
    return _facts(results, f"unchanged: {reason}")


def _verify(
    model: SavedModel, served: Runtime, written: SavedModel, examples: Examples | None, tolerance: float
) -> Verification:
    """Compare the SavedModels, and the Keras forms; return the result of the former."""
    assert model.keras is not None and written.keras is not None
    is_one_file = model.keras in (model.path, model.saved_model)
    keras_form = served if is_one_file else runtimes.load(SavedModel(model.keras))
    _compare(model.signature, keras_form, SavedModel(written.keras), examples, tolerance)
    return _compare(model.signature, served, written, examples, tolerance)


def _compare(key: str, parent: Runtime, child: SavedModel, examples: Examples | None, tolerance: float) -> Verification:
    comparison = Comparison([key], lambda _: nullcontext(parent), examples, key)
    verified = comparison.verify(lambda _: runtimes.load(child), tolerance, what="folded", fix=FIX)
    outputs = {name.removeprefix(f"{key}/"): facts for name, facts in verified["outputs"].items()}
    return {**verified, "outputs": outputs}
