"""A model without a Keras form: its graph is frozen, and the batch norms fold into the operations before them."""

from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.fold_batch_norm.plan import Verdict
from tfopt.errors import ComponentError
from tfopt.graph import saved_model
from tfopt.graph.batch_norms import batch_norms, why_left
from tfopt.graph.comparison import Comparison, largest_error, tolerance_of
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.pass_manager import graph_of, optimize
from tfopt.graph.report import Report
from tfopt.graph.rewrite_order import NORMALIZING
from tfopt.serving.saved_model_assets import copy_assets

FOLDING = (*NORMALIZING, "fold_batch_norm", "fold_scale", "fold_shift", "strip_unused", "share_equal_nodes")


def fold_frozen(frozen: Frozen) -> tuple[Frozen, list[Verdict]]:
    """Return a frozen model with its batch norms folded, and what became of each.

    Batch norms are looked for after the constants are folded: before that Keras 3 has them in eight operations each.
    """
    plain, report = optimize(frozen, NORMALIZING, Report()), Report()
    found = batch_norms(graph_of(plain))
    child = optimize(plain, FOLDING, report)
    graph = graph_of(child)
    left = batch_norms(graph)
    verdicts = []
    for name in found:
        if name in left:
            verdicts.append(Verdict(name, refused=why_left(graph, left[name], report)))
        else:
            node = graph.nodes.get(name)
            into = node.inputs[0].node if node is not None and node.op == "BiasAdd" else "an operation before it"
            verdicts.append(Verdict(name, folded_into=into))
    return child, verdicts


def write_verified(
    model: SavedModel, child: Frozen, target: Path, examples: Examples | None, tolerance: float | None
) -> dict[str, Any]:
    """Write a frozen model as a SavedModel below ``target``, load it again, and run it beside its parent.

    Returns:
        The parity of each output of each signature, and what it was measured on.

    Raises:
        ComponentError: When an output differs by more than the tolerance, or the parent cannot be run.
    """
    allowed = tolerance_of(child) if tolerance is None else tolerance
    written = SavedModel(target / "Format-Serving")
    saved_model.write(child, written.path)
    copy_assets(model, written.path)
    comparison = Comparison(child.signatures, lambda key: runtimes.load(model, signature=key), examples)
    outputs = comparison.errors(lambda key: runtimes.load(written, signature=key))
    name, error = largest_error(outputs)
    if not error <= allowed:
        raise ComponentError(
            f"output {name!r} of the folded model differs by {error:.2g} of its range",
            f"at most {allowed:g}",
            "pass a larger tolerance if that is harmless, as in a network that its own rounding moves as far",
        )
    return {"inputs": comparison.source, "tolerance": allowed, "outputs": outputs, "not_compared": comparison.skipped}
