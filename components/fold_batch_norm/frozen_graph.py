"""Folding in a frozen graph, for models without a Keras form."""

from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.model_card import Verification
from tfopt.components.fold_batch_norm.plan import FoldResult
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDING, NORMALIZING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.matching.batch_norms import batch_norms, why_left
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import Comparison, largest_error, special_inputs, tolerance_of
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import EMPTY, EXTREMES, IEEE
from tfopt.saved_models import saved_model
from tfopt.saved_models.state import changes_state
from tfopt.serving.saved_model_assets import copy_assets


def fold_frozen(frozen: Frozen) -> tuple[Frozen, list[FoldResult]]:
    """Return a frozen model with its batch norms folded, and the result for each batch norm.

    Batch norms are searched after constants are folded, because Keras 3 exports each as eight operations.
    """
    plain, report = optimize(frozen, NORMALIZING, Report()), Report()
    before = batch_norms(graph_of(plain))
    child = optimize(plain, FOLDING, report)
    graph = graph_of(child)
    remaining = batch_norms(graph)
    results = []
    for name in before:
        if name in remaining:
            results.append(FoldResult(name, refused=why_left(graph, remaining[name], report)))
        else:
            node = graph.nodes.get(name)
            into = node.inputs[0].node if node is not None and node.op == "BiasAdd" else "an operation before it"
            results.append(FoldResult(name, folded_into=into))
    return child, results


def special_difference(
    model: SavedModel, parent: Frozen, child: Frozen, examples: Examples | None, tolerance: float | None
) -> str | None:
    """Return how the outputs differ on NaN, infinities, zeros, denormals, extremes or no records; None if they do not.

    On the largest floats they may: folded layers round at other places, so that one form may overflow (ADR 40).
    """
    if (special := special_inputs(parent)) is None:
        return None
    comparison = Comparison(
        parent.signatures, lambda key: FrozenRuntime(parent, key), examples, model.signature, special
    )
    allowed = tolerance_of(child) if tolerance is None else tolerance
    kinds = (IEEE, EXTREMES, EMPTY)
    lines = comparison.special_differences(lambda key: FrozenRuntime(child, key), kinds, allowed)
    return lines[0] if lines else None


def write_verified(
    model: SavedModel, child: Frozen, target: Path, examples: Examples | None, tolerance: float | None
) -> Verification:
    """Write a frozen model as a SavedModel below ``target``, load it again, and compare it with its parent.

    Returns:
        The parity of each output of each signature, and the source of the inputs.

    Raises:
        ComponentError: If an output differs by more than the tolerance, or the parent cannot be run.
    """
    allowed = tolerance_of(child) if tolerance is None else tolerance
    written = SavedModel(target / "Format-Serving")
    saved_model.write(child, written.path)
    copy_assets(model, written.path)
    comparison = Comparison(
        child.signatures,
        lambda key: runtimes.load(model, signature=key),
        examples,
        model.signature,
        stateful=changes_state(child.graph),
    )
    outputs = comparison.errors(lambda key: runtimes.load(written, signature=key))
    name, error = largest_error(outputs)
    if not error <= allowed:
        raise ComponentError(
            f"output {name!r} of the folded model differs by {error:.2g} of its range",
            f"at most {allowed:g}",
            "pass a larger tolerance if that is harmless, as in a network whose own rounding errors are as large",
        )
    return {"inputs": comparison.source, "tolerance": allowed, "outputs": outputs, "not_compared": comparison.skipped}
