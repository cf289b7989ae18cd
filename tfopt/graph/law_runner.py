"""Run laws in order until none applies, on a graph or on a frozen model with its functions."""

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.function_bodies import read_body, write_body
from tfopt.graph.graph_def import GraphDef, prune_functions
from tfopt.graph.law import LocalLaw
from tfopt.graph.laws import laws
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report
from tfopt.graph.rewriter import apply

ROUNDS = 8  # a late law may make an early one applicable; more than three rounds were never observed


def run(names: Sequence[str], graph: Graph, report: Report) -> int:
    """Apply laws in this order, repeatedly until none fires, and return the number of firings.

    Args:
        names: Names of laws.
        graph: The graph, changed in place.
        report: Receives the firings and refusals.
    """
    total = idle = 0
    for name in islice(cycle(names), ROUNDS * len(names)):
        fired = run_law(name, graph, report)
        total += fired
        idle = 0 if fired else idle + 1
        if idle == len(names):  # no law fired in a whole round
            break
    report.forget_gone(graph.nodes)
    return total


def graph_of(frozen: Frozen) -> Graph:
    """Return the mutable graph of a frozen model, with its inputs fed and its protected nodes fetched."""
    graph = Graph.of(frozen.graph, fed=frozen.inputs, fetched=frozen.protected - frozen.inputs | set(frozen.outputs))
    graph.reuse_shapes(frozen.shapes)
    return graph


@contextlib.contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    """Disable the garbage collector: it takes a tenth of the time to walk the many nodes, and frees nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@garbage_collection_disabled()
def optimize(frozen: Frozen, names: Sequence[str], report: Report, *, fast_math: bool = False) -> Frozen:
    """Return a frozen model after laws in this order until none fires, function bodies included; see `run`."""
    changed = frozen
    for _ in range(ROUNDS):
        graph = graph_of(changed)
        graph.fast_math = fast_math
        if run(names, graph, report) or changed.graph.library.function:
            changed = replace(frozen, graph=graph.to_graph_def())
        else:
            changed.shapes = graph.inferred_shapes  # for the next laws; inferring them takes longer than most laws
        prune_functions(changed.graph)
        if not _run_in_functions(
            names, changed.graph, report, fast_math=fast_math
        ):  # a change in a body may enable laws outside
            break
    prune_functions(changed.graph)
    report.forget_gone(names_in(changed.graph))
    return changed


def names_in(graph_def: GraphDef) -> set[str]:
    """Return the names of nodes, functions, and nodes in functions (``function/node``), as reports use them."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    inner = {f"{name}/{node.name}" for name, function in functions.items() for node in function.node_def}
    return {node.name for node in graph_def.node} | set(functions) | inner


def _run_in_functions(names: Sequence[str], graph_def: GraphDef, report: Report, *, fast_math: bool) -> int:
    """Apply laws in every function, new ones included, and return the number of firings."""
    entered: set[str] = set()
    total = 0
    while queue := [added for added in graph_def.library.function if added.signature.name not in entered]:
        library = {function.signature.name: function for function in graph_def.library.function}
        for function in queue:
            name = function.signature.name
            entered.add(name)
            body = read_body(function, library)
            if isinstance(body, str):
                report.refuse("functions", name, body)
                continue
            inner = Report()
            body.graph.fast_math = fast_math
            if fired := run(names, body.graph, inner):
                function.CopyFrom(write_body(body, function))
                total += fired
            report.add(inner, name)
            graph_def.library.function.extend(
                added for added in body.graph.library.function if added.signature.name not in library
            )
            library |= {added.signature.name: added for added in graph_def.library.function}
    return total


def run_law(name: str, graph: Graph, report: Report) -> int:
    """Apply one law everywhere, and return the number of firings.

    Raises:
        ComponentError: If there is no law of this name.
    """
    if name not in laws():
        raise ComponentError(f"law {name!r}", "the name of a law", nearest(name, laws()))
    law = laws()[name]
    graph.zero_signs.clear()
    return apply(name, law, graph, report) if isinstance(law, LocalLaw) else law.run(graph, report)


def unmet_requirements(names: Sequence[str]) -> dict[str, list[str]]:
    """Return, by law, its requirements that no law before it ensures."""
    ensured: set[str] = set()
    unmet_needs: dict[str, list[str]] = {}
    for name in names:
        missing = [need for need in laws()[name].requires if need not in ensured]
        unmet_needs |= {name: missing} if missing else {}
        ensured |= set(laws()[name].ensures)
    return unmet_needs
