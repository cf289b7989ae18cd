"""The whole of the work: plan, rewrite, write, verify, and say what was done."""

import logging
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import CARD, Examples, SavedModel
from tfopt.artifacts.staging import link_tree
from tfopt.components.fold_batch_norm.frozen_graph import fold_frozen, write_verified
from tfopt.components.fold_batch_norm.plan import Verdict, make_plan
from tfopt.components.fold_batch_norm.rebuild import folded
from tfopt.components.fold_batch_norm.verification import verify
from tfopt.errors import ComponentError
from tfopt.graph.saved_model import read
from tfopt.keras_models.layer_graph import Layer
from tfopt.measurement.parity import describe_parity
from tfopt.runtimes.keras_outputs import output_names
from tfopt.serving.saved_model_assets import copy_assets

PER_KERNEL, AT_MOST = 1e-5, 1e-4  # of the output's range: a rounding grows on its way through the layers after it
HALF = {"float16": 1e-2, "bfloat16": 5e-2}  # there parent and child both round every layer's output
SHOWN = 5

log = logging.getLogger("tfopt")


def fold(model: SavedModel, target: Path, examples: Examples | None, tolerance: float | None) -> dict[str, Any]:
    """Write the folded model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be read, or the folded one does not answer as it does.
    """
    if model.keras is None:
        return _fold_graph(model, target, examples, tolerance)
    keras_model = keras_models.load(model)
    keras_models.check_weights(keras_model)
    plan = make_plan(keras_model)
    summary = _log(plan.verdicts)
    if not plan.folded:
        _pass_on(model, target, keras_model)
        return _facts(plan.verdicts, f"unchanged: {summary}")
    parent = runtimes.load(model)
    names = output_names(model, parent, keras_model)
    keras_models.save(folded(keras_model, plan), target, names)
    copy_assets(model, target / "Format-Serving")
    allowed = _tolerance(keras_model) if tolerance is None else tolerance
    verified = verify(model, parent, SavedModel(target), examples, allowed)
    log.info("%s", describe_parity(verified["outputs"]))
    return {**_facts(plan.verdicts, summary), "verified": verified}


def _fold_graph(model: SavedModel, target: Path, examples: Examples | None, tolerance: float | None) -> dict[str, Any]:
    try:
        frozen = read(model.saved_model or model.path)
    except ComponentError as refusal:
        log.info("%s is passed on unchanged: %s", model.name, refusal.received)
        _pass_on(model, target)
        return _facts([], f"unchanged: it has no Keras form, and its graph cannot be frozen: {refusal.received}")
    child, verdicts = fold_frozen(frozen)
    summary = _log(verdicts)
    if all(verdict.refused for verdict in verdicts):
        _pass_on(model, target)
        return _facts(verdicts, f"unchanged: {summary}")
    verified = write_verified(model, child, target, examples, tolerance)
    log.info("%s", describe_parity(verified["outputs"]))
    return {**_facts(verdicts, summary), "verified": verified}


def _facts(verdicts: list[Verdict], summary: str) -> dict[str, Any]:
    report = {"summary": summary, "batch_norms": [verdict.facts() for verdict in verdicts]}
    return {"name": "folded", "folded": sum(verdict.refused is None for verdict in verdicts), "report": report}


def _log(verdicts: list[Verdict]) -> str:
    refused = [verdict for verdict in verdicts if verdict.refused]
    summary = f"{len(verdicts) - len(refused)} of {len(verdicts)} batch norms folded" if verdicts else "no batch norms"
    log.info("%s", summary)
    for verdict in refused[:SHOWN]:
        log.info("  %s stays: %s", verdict.batch_norm, verdict.refused)
    if len(refused) > SHOWN:
        log.info("  %d more stay: see report in the model card", len(refused) - SHOWN)
    return summary


def _pass_on(model: SavedModel, target: Path, keras_model: Layer | None = None) -> None:
    """Hand the model on as it is, by links; export it first where it is only a Keras file."""
    if model.saved_model is None:
        keras_models.save(keras_model, target)
        return
    if model.saved_model == model.path:
        link_tree(model.path, target / "Format-Serving")
        (target / "Format-Serving" / CARD).unlink(missing_ok=True)
        return
    for form in model.path.glob("Format-*"):
        link_tree(form, target / form.name)


def _tolerance(model: Layer) -> float:
    kernels = sum(len(weight.shape) > 1 for weight in model.weights)
    computed_in = {getattr(layer, "compute_dtype", None) for layer in model._flatten_layers()}
    return max([min(PER_KERNEL * kernels, AT_MOST), *(HALF[dtype] for dtype in HALF if dtype in computed_in)])
