"""The whole of the work: freeze, try pass after pass, compare after each, write, verify, and say what was done."""

import logging
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tfopt import keras_models, runtimes
from tfopt.artifacts import CARD, Examples, SavedModel
from tfopt.artifacts.staging import link_tree
from tfopt.components.optimize_graph.verified_passes import Trial
from tfopt.errors import ComponentError
from tfopt.formatting import distance
from tfopt.graph import saved_model
from tfopt.graph.batch_norms import batch_norms, why_left
from tfopt.graph.comparison import Comparison, largest_error, tolerance_of
from tfopt.graph.frozen_model import Frozen, Signature
from tfopt.graph.frozen_runtime import FrozenRuntime
from tfopt.graph.pass_manager import graph_of, unmet_requirements
from tfopt.graph.rewrites import laws
from tfopt.serving.saved_model_assets import copy_assets

log = logging.getLogger("tfopt")


class Ends(NamedTuple):
    """Of a frozen graph that comes in: its inputs and outputs; whether one goes out."""

    inputs: list[str]
    outputs: list[str]
    written: bool


def optimize(
    model: SavedModel,
    target: Path,
    examples: Examples | None,
    passes: list[str],
    tolerance: float | None,
    explain: bool,
    ends: Ends,
) -> dict[str, Any]:
    """Write the optimized model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be frozen or run, or what was written answers otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = _exported(model, Path(folder), ends)
        parent = saved_model.read(source.saved_model or source.path)
        allowed = tolerance_of(parent) if tolerance is None else tolerance
        comparison = Comparison(parent.signatures, lambda key: FrozenRuntime(parent, key), examples)
        trial = Trial(parent, comparison, allowed)
        trial.run(passes)
        _say(trial, explain)
        facts = {"name": "optimized", "nodes": len(trial.model.graph.node), "report": _report(parent, trial, passes)}
        if explain:
            link_tree(source.saved_model or source.path, target / "Format-Serving")
            (target / "Format-Serving" / CARD).unlink(missing_ok=True)
            return {**facts, "name": model.name, "nodes": len(parent.graph.node), "explained": True}
        verified = _write_verified(source, trial.model, target, examples, allowed)
        if ends.written:
            saved_model.write_graph(trial.model, target / "frozen.pb")
            facts["frozen_graph"] = {key: _names(signature) for key, signature in trial.model.signatures.items()}
    return {**facts, "verified": verified}


def _exported(model: SavedModel, folder: Path, ends: Ends) -> SavedModel:
    if model.frozen_graph:
        saved_model.write(saved_model.read_graph(model.frozen_graph, ends.inputs, ends.outputs), folder / "exported")
        return SavedModel(folder / "exported")
    if ends.inputs or ends.outputs:
        raise ComponentError(
            f"inputs={ends.inputs}, outputs={ends.outputs} for a model with signatures",
            "such names for a frozen graph only",
            "leave them out",
        )
    if model.saved_model is not None:
        return model
    keras_models.save(keras_models.load(model), folder / "exported")
    return SavedModel(folder / "exported")


def _names(signature: Signature) -> dict[str, dict[str, str]]:
    sides = {"inputs": signature.inputs, "outputs": signature.outputs}
    return {side: {name: end.tensor for name, end in ends.items()} for side, ends in sides.items()}


def _report(parent: Frozen, trial: Trial, passes: list[str]) -> dict[str, Any]:
    graph = graph_of(trial.model)
    missing = unmet_requirements([name for name in passes if name in laws()])
    return {
        "summary": f"{len(parent.graph.node)} nodes became {len(graph.nodes)}",
        "passes": trial.rows,
        "taken_back": trial.taken_back,
        **trial.report.facts(),
        "batch_norms_left": {name: why_left(graph, at, trial.report) for name, at in batch_norms(graph).items()},
        "expected_before": missing,
    }


def _say(trial: Trial, explain: bool) -> None:
    for row in trial.rows:
        would = "would make" if explain else "made"
        error = f", largest difference {distance('error', row['error'])}" if "error" in row else ""
        log.info("%s %s %d nodes %d%s", row["pass"], would, row["nodes"][0], row["nodes"][1], error)
    for name, reason in trial.taken_back.items():
        log.info("%s is taken back: %s", name, reason)


def _write_verified(
    source: SavedModel, child: Frozen, target: Path, examples: Examples | None, allowed: float
) -> dict[str, Any]:
    """Write, load again, and run beside the parent as TensorFlow serves both."""
    written = SavedModel(target / "Format-Serving")
    saved_model.write(child, written.path)
    copy_assets(source, written.path)
    comparison = Comparison(child.signatures, lambda key: runtimes.load(source, signature=key), examples)
    outputs = comparison.errors(lambda key: runtimes.load(written, signature=key))
    name, error = largest_error(outputs)
    if not error <= allowed:
        raise ComponentError(
            f"output {name!r} of the written model differs by {error:.2g} of its range",
            f"at most {allowed:g}",
            "pass a larger tolerance if that is harmless, or leave passes out: explain=True reports the error of each",
        )
    return {"inputs": comparison.source, "tolerance": allowed, "outputs": outputs, "not_compared": comparison.skipped}
