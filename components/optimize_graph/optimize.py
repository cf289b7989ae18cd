"""Freeze a model, run the passes with a comparison after each, write and verify the result, and report."""

import logging
import tempfile
from pathlib import Path

from tfopt import keras_models
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.components.optimize_graph.parameters import Optimization, read_passes
from tfopt.components.optimize_graph.verified_passes import VerifiedPasses
from tfopt.errors import ComponentError
from tfopt.formatting import distance
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_runner import graph_of, unmet_requirements
from tfopt.graph.laws import laws
from tfopt.graph.matching.batch_norms import batch_norms, why_left
from tfopt.graph_checks.comparison import Comparison, equal_signatures, tolerance_of, why_no_special_values
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.saved_models import graph_file, saved_model
from tfopt.saved_models.feature_signature import add_feature_signature
from tfopt.saved_models.removed_ops import has_successors
from tfopt.saved_models.signature_functions import check_fixed_layout, share_signatures, write_with_fixed_layout
from tfopt.saved_models.state import changes_state
from tfopt.serving.verified_write import copy_assets, write_verified
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)


def optimize(model: SavedModel, target: Path, examples: Examples | None, optimization: Optimization) -> JsonObject:
    """Write the optimized model into the staging folder ``target`` and return the content of its model card."""
    passes = read_passes(optimization.passes, fast_math=optimization.fast_math)
    with tempfile.TemporaryDirectory() as folder:
        source = _exported(model, Path(folder), optimization)
        parent = saved_model.read(source.saved_model or source.path, state=True)
        if optimization.fixed_layout:
            check_fixed_layout(parent)
        if optimization.feature_signature:
            parent = add_feature_signature(parent, source.signature, optimization.feature_signature)
        parent = share_signatures(parent, source.signature)
        allowed = tolerance_of(parent) if optimization.tolerance is None else optimization.tolerance
        left_out = "not compared: fast_math" if optimization.fast_math else why_no_special_values(parent)
        comparison = Comparison(
            *(parent.signatures, lambda key: FrozenRuntime(parent, key), examples, source.signature),
            special=not left_out,
            stateful=changes_state(parent.graph),
            equal=equal_signatures(parent, source.signature),
        )
        run = VerifiedPasses(parent, comparison, allowed, fast_math=optimization.fast_math)
        run.run_all(passes)
        _log(run, explain=optimization.explain)
        report = {**_report(parent, run, passes), "special_values": left_out or "compared"}
        facts: JsonObject = {"name": "optimized", "nodes": len(run.model.graph.node), "report": report}
        if optimization.explain:
            keras_models.place_saved_model(source, target / "Format-Serving")
            return {**facts, "name": model.name, "nodes": len(parent.graph.node), "explained": True}
        # Each pass is within the tolerance: what is left is the rounding of TensorFlow's own optimizer.
        fix = "pass a larger tolerance"
        write = write_with_fixed_layout if optimization.fixed_layout else saved_model.write
        facts["name"] = "fixed layout" if optimization.fixed_layout else facts["name"]
        verified = write_verified(source, run.model, target, examples, allowed, what="written", fix=fix, write=write)
        if optimization.frozen_graph:
            graph_file.write_graph(run.model, target / "frozen.pb")
            facts["frozen_graph"] = {
                key: {
                    "inputs": {name: end.tensor for name, end in signature.inputs.items()},
                    "outputs": {name: end.tensor for name, end in signature.outputs.items()},
                }
                for key, signature in run.model.signatures.items()
            }
    return {**facts, "verified": verified}


def _exported(model: SavedModel, folder: Path, optimization: Optimization) -> SavedModel:
    inputs, outputs = list(optimization.inputs), list(optimization.outputs)
    exported = SavedModel(folder / "exported")
    if model.frozen_graph:
        saved_model.write(graph_file.read_graph(model.frozen_graph, inputs, outputs), exported.path)
    elif inputs or outputs:
        received = f"{inputs=}, {outputs=} for a model with signatures"
        raise ComponentError(received, "inputs and outputs for a frozen graph only", "leave them out")
    elif model.saved_model is None:
        keras_models.save(keras_models.load(model), exported.path)
    elif has_successors(read_meta_graph(model.saved_model).graph_def):  # which are replaced by reading and writing it
        saved_model.write(saved_model.read(model.saved_model, state=True), exported.path)
        copy_assets(model, exported.path)
    else:
        return model
    return exported


def _report(parent: Frozen, run: VerifiedPasses, passes: list[str]) -> JsonObject:
    graph = graph_of(run.model)
    missing = unmet_requirements([name for name in passes if name in laws()])
    return {
        "summary": f"{len(parent.graph.node)} nodes became {len(graph.nodes)}",
        "passes": run.rows,
        "taken_back": run.taken_back,
        **run.report.facts(),
        "batch_norms_left": {name: why_left(graph, at, run.report) for name, at in batch_norms(graph).items()},
        "expected_before": missing,
    }


def _log(run: VerifiedPasses, *, explain: bool) -> None:
    for row in run.rows:
        verb = "would make" if explain else "made"
        error = f", largest difference {distance('error', row['error'])}"
        log.info("%s %s %d nodes %d%s", row["pass"], verb, row["nodes"][0], row["nodes"][1], error)
    for name, reason in run.taken_back.items():
        log.info("%s is undone: %s", name, reason)
