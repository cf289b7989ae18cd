"""Folding in a frozen graph, for models without a Keras form."""

from tfopt.artifacts import Examples, SavedModel
from tfopt.components.fold_batch_norm.plan import FoldResult
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDING, NORMALIZING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.matching.batch_norms import batch_norms, why_left
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import Comparison, tolerance_of, why_no_special_values
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import EMPTY, EXTREMES, IEEE


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
    if why_no_special_values(parent):
        return None
    comparison = Comparison(
        parent.signatures, lambda key: FrozenRuntime(parent, key), examples, model.signature, special=True
    )
    allowed = tolerance_of(child) if tolerance is None else tolerance
    kinds = (IEEE, EXTREMES, EMPTY)
    lines = comparison.special_differences(lambda key: FrozenRuntime(child, key), kinds, allowed)
    return lines[0] if lines else None
