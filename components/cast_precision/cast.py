"""Cast a model: choose operations, cast them, revert layers with large errors, write the model and verify it."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.cast_precision.castable_ops import candidates, changed_attributes
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law import Maker
from tfopt.graph.law_order import NORMALIZING
from tfopt.graph.law_runner import optimize
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attributes, definition, output_types, types_of
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import TOLERANCE, Comparison, largest_error, why_no_special_values
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import IEEE
from tfopt.graph_def import data_type, subgraph
from tfopt.saved_models.saved_model import opened, write
from tfopt.saved_models.state import changes_state
from tfopt.serving.verified_write import copy_assets
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)


def cast_model(
    model: SavedModel,
    target: Path,
    examples: Examples | None,
    precision: str,
    keep: Sequence[str],
    tolerance: float | None,
) -> JsonObject:
    """Write the cast model into the staging folder ``target`` and return the content of its model card."""
    allowed = TOLERANCE[precision] if tolerance is None else tolerance
    with opened(model, state=True) as frozen:
        parent = optimize(frozen, NORMALIZING, Report())  # constants of constants are computed in float32
        chosen, stays = candidates(parent, precision, keep)
        if not chosen:
            reasons = "; ".join(f"{reason}: {', '.join(ops)}" for reason, ops in stays.items())
            received = f"nothing to cast: {reasons or 'it computes nothing in float32'}"
            raise ComponentError(received, "operations in float32 with a 16-bit kernel", "leave the model as it is")
        no_special_values = why_no_special_values(frozen)
        comparison = Comparison(
            *(parent.signatures, lambda key: FrozenRuntime(frozen, key), examples, model.signature),
            special=not no_special_values,
            stateful=changes_state(frozen.graph),
        )
        taken_back, errors = revert(
            chosen, lambda nodes: _error(rewritten(parent, nodes, precision), comparison), allowed
        )
        left = chosen.difference(*taken_back.values())
        if not left:
            received = "no layer can be cast within the tolerance, not even alone"
            expected = f"an error of at most {allowed:g} of the output's range"
            raise ComponentError(received, expected, "pass a larger tolerance, or leave the model as it is")
        child = rewritten(parent, left, precision)
        special = comparison.special_differences(lambda key: FrozenRuntime(child, key), (IEEE,))
        for line in special:
            log.warning("on special values: %s", line)
        write(child, target / "Format-Serving")
        copy_assets(model, target / "Format-Serving")
    written = SavedModel(target)
    verified = comparison.verify(
        lambda key: runtimes.load(written, signature=key), allowed, what="cast", fix="pass a larger tolerance"
    )
    report = {
        "cast": len(left),
        "stays": stays,
        "taken_back": {name: errors[name] for name in taken_back},
        "errors_alone": errors,
        "special_values": special or no_special_values or "NaN and infinities at the same places",
    }
    _, error = largest_error(verified["outputs"])
    log.info(
        "%d operations in %s, %d layers reverted; largest error %.2g", len(left), precision, len(taken_back), error
    )
    return {"name": f"cast {precision}", "precision": precision, "report": report, "verified": verified}


def rewritten(frozen: Frozen, nodes: set[str], precision: str) -> Frozen:
    """Return the model with these nodes in this precision; all other nodes read and return the same dtypes."""
    graph, half = Graph.of(frozen.graph), data_type(precision)
    for node in [node for node in graph.nodes.values() if node.name in nodes]:
        changed = dict.fromkeys(changed_attributes(node, precision), half)
        graph.replace(node, attr=attributes(node.op, node.attr, changed))
    cast: dict[tuple[Tensor, int], Tensor] = {}  # a tensor is cast once for all its readers
    for node in list(graph.nodes.values()):
        types = [kind for argument in definition(node.op).input_arg for kind in types_of(argument, node)]
        sources = list(zip(node.inputs, types, strict=True))
        cast |= {source: _as_type(graph, *source, precision) for source in sources if source not in cast}
        if (inputs := [cast[source] for source in sources]) != node.inputs:
            graph.replace(node, inputs=inputs)
    return replace(frozen, graph=subgraph(graph.to_graph_def(), frozen.protected))


def _as_type(graph: Graph, tensor: Tensor, kind: int, precision: str) -> Tensor:
    """Return a tensor in float32 or 16 bits; a cast is added if its dtype differs."""
    from tensorflow import as_dtype

    source = graph.nodes[tensor.node]
    own = output_types(source)[tensor.output]
    if own == kind:
        return tensor
    if graph.is_constant(tensor):  # stored in 16 bits, instead of cast at each call
        values = graph.array(tensor).astype(as_dtype(kind).as_numpy_dtype)
        return Maker(graph, source, source.controls).constant(precision, values)
    name = graph.fresh(f"{source.name}/{as_dtype(kind).name}")
    graph.insert(Node(name, "Cast", [tensor], [], attributes("Cast", {}, {"SrcT": own, "DstT": kind})))
    return Tensor(name)


def revert(
    chosen: set[str], error: Callable[[set[str]], float], allowed: float
) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return the layers that return to float32 with their nodes, and the error of each layer cast alone, if measured.

    Layers are ordered by their error alone. Bisection finds how many of the worst must be reverted: errors mostly add
    up, so fewer cast layers give a smaller error. All layers are returned if even the last one exceeds the limit.
    """
    if error(chosen) <= allowed:
        return {}, {}
    layers: dict[str, set[str]] = defaultdict(set)
    for name in chosen:
        layers[name.rpartition("/")[0] or name].add(name)  # a layer is the scope of names
    alone = {name: error(nodes) for name, nodes in layers.items()}
    order = sorted(layers, key=lambda name: (-alone[name], name))
    low, high = 0, len(order)  # reverting `low` layers is too few; `high` is enough, or all
    while high - low > 1:
        middle = (low + high) // 2
        left = set().union(*(layers[name] for name in order[middle:]))
        low, high = (low, middle) if error(left) <= allowed else (middle, high)
    return {name: layers[name] for name in order[:high]}, {name: alone[name] for name in order}


def _error(child: Frozen, comparison: Comparison) -> float:
    try:
        return largest_error(comparison.errors(lambda key: FrozenRuntime(child, key)))[1]
    except ComponentError:  # NaN or infinity where the output of the parent is finite
        return float("inf")
