"""The run of an order of laws until nothing changes any more, on a graph and on a frozen model."""

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice

from tfopt.errors import ComponentError, nearest
from tfopt.graph.frozen_model import Frozen, prune_functions
from tfopt.graph.function_bodies import read_body, write_body
from tfopt.graph.mutable_graph import Graph, GraphDef
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Rule
from tfopt.graph.rewriter import apply
from tfopt.graph.rewrites import laws

ROUNDS = 8  # a law late in the order may make room for an early one; more than three were never seen


def run(names: Sequence[str], graph: Graph, report: Report) -> int:
    """Try laws in this order, again and again until none fires, and return how often one did.

    Args:
        names: Of laws.
        graph: Is changed.
        report: Is told what fired and what was refused.
    """
    total = idle = 0
    for name in islice(cycle(names), ROUNDS * len(names)):
        fired = run_one(name, graph, report)
        total += fired
        idle = 0 if fired else idle + 1
        if idle == len(names):  # nothing changed since each was tried
            break
    report.forget_gone(graph.nodes)
    return total


def view(frozen: Frozen) -> Graph:
    """The graph of a frozen model, which keeps what the model names."""
    fed = {end.node for signature in frozen.signatures.values() for end in signature.inputs.values()}
    return Graph.of(frozen.graph, fed=fed, fetched=frozen.protected - fed | set(frozen.outputs))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python's search for cycles out: a tenth of the time, it walks the many nodes again and again in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@uncollected()
def optimize(frozen: Frozen, names: Sequence[str], report: Report) -> Frozen:
    """Return a frozen model after laws tried in this order until none fires, in bodies of functions too; see `run`."""
    changed = frozen
    for _ in range(ROUNDS):
        graph = view(changed)
        if run(names, graph, report) or changed.graph.library.function:
            changed = replace(frozen, graph=graph.to_graph_def())
        prune_functions(changed.graph)
        if not _enter(names, changed.graph, report):  # what was found in a body may show that it hands something on
            break
    prune_functions(changed.graph)
    report.forget_gone(names_in(changed.graph))
    return changed


def names_in(graph_def: GraphDef) -> set[str]:
    """What a report calls the nodes of a GraphDef, its functions, and the nodes of these."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    inner = {f"{name}/{node.name}" for name, function in functions.items() for node in function.node_def}
    return {node.name for node in graph_def.node} | set(functions) | inner


def _enter(names: Sequence[str], made: GraphDef, report: Report) -> int:
    """Try the laws in the body of every function, those included that are made on the way; how often one fired."""
    entered: set[str] = set()
    total = 0
    while ahead := [one for one in made.library.function if one.signature.name not in entered]:
        library = {function.signature.name: function for function in made.library.function}
        for function in ahead:
            name = function.signature.name
            entered.add(name)
            body = read_body(function, library)
            if isinstance(body, str):
                report.refuse("functions", name, body)
                continue
            inner = Report()
            if fired := run(names, body.graph, inner):
                function.CopyFrom(write_body(body, function))
                total += fired
            report.add(inner.inside(name))
            made.library.function.extend(
                one for one in body.graph.library.function if one.signature.name not in library
            )
            library |= {one.signature.name: one for one in made.library.function}
    return total


def run_one(name: str, graph: Graph, report: Report) -> int:
    """Try one law everywhere, and return how often it fired.

    Raises:
        ComponentError: When there is none of this name.
    """
    if name not in laws():
        raise ComponentError(f"pass {name!r}", "the name of a law", nearest(name, laws()))
    law = laws()[name]
    return apply({name: law}, graph, report) if isinstance(law, Rule) else law.run(graph, report)


def unmet(names: Sequence[str]) -> dict[str, list[str]]:
    """What laws of an order require that none before them ensures, by law."""
    known: set[str] = set()
    found: dict[str, list[str]] = {}
    for name in names:
        missing = [need for need in laws()[name].requires if need not in known]
        found |= {name: missing} if missing else {}
        known |= set(laws()[name].ensures)
    return found
