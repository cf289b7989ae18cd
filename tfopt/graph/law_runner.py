"""Run laws in order until none applies, on a graph or on a frozen model with its functions."""

import contextlib
import gc
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.function_bodies import read_body, write_body
from tfopt.graph.law import LocalLaw, Maker, Refusal, SearchLaw, WholeGraphLaw
from tfopt.graph.laws import laws
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity, is_pure, output_types
from tfopt.graph.report import Report
from tfopt.graph.rewriter import apply
from tfopt.graph_def import GraphDef, prune_functions

ROUNDS = 8  # a late law may make an early one applicable; more than three rounds were never observed


def run(names: Sequence[str], graph: Graph, report: Report) -> int:
    """Change a graph by laws in this order, repeatedly until none fires, and return the number of firings."""
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
        if not _run_in_functions(names, changed.graph, report, fast_math=fast_math):
            break  # else, a change in a body may enable laws outside
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
            functions = body.graph.library.function
            graph_def.library.function.extend(added for added in functions if added.signature.name not in library)
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
    if isinstance(law, SearchLaw):
        return _apply_search(name, law, graph, report)
    return apply(name, law, graph, report) if isinstance(law, LocalLaw) else _apply_whole(name, law, graph, report)


def _apply_whole(name: str, law: WholeGraphLaw, graph: Graph, report: Report) -> int:
    fired = 0
    for node, reason in law.run(graph):
        if reason:
            report.refuse(name, node, reason)
        else:
            report.fire(name, node)
            fired += 1
    if fired and law.changes_shapes:
        graph.forget_shapes()
    return fired


def _apply_search(name: str, law: SearchLaw[Any], graph: Graph, report: Report) -> int:
    """Apply a law at all nodes of its operations, and at those that it adds; return the number of firings."""
    fired = 0
    nodes = graph.of_op(*law.ops) if law.in_frames or not is_framed(graph) else []
    queue = deque(node.name for node in nodes)
    while queue:
        root = graph.nodes.get(queue.popleft())
        parts = None if root is None else law.find(graph, root)
        if root is None or parts is None:
            continue
        if isinstance(parts, str):
            report.refuse(name, root.name, parts)
            continue
        graph.touched.clear()
        make = Maker(graph, root, [])
        try:
            results = law.rewrite(parts, make)
        except Refusal as refusal:
            make.undo()
            report.refuse(name, root.name, str(refusal))
            continue
        _replace(graph, root, results, make.made)
        report.fire(name, root.name)
        fired += 1
        queue += [near for near in graph.touched if near in graph.nodes and graph.nodes[near].op in law.ops]
    return fired


def _replace(graph: Graph, root: Node, results: list[Tensor], made: list[str]) -> None:
    """Replace the outputs of a node. A new node takes over its name; the readers of others read existing tensors."""
    if len(results) == 1 and results[0].node in made:
        last = graph.remove(results[0].node)
        graph.remove(root.name)
        graph.insert(Node(root.name, last.op, last.inputs, root.controls, last.attr, last.device))
    else:
        for index, result in enumerate(results):
            graph.know_shape(result, Tensor(root.name, index))
            graph.redirect(Tensor(root.name, index), result)
        graph.remove(root.name)
        if root.name in graph.fetched:
            graph.insert(identity(root.name, results[0], output_types(root)[0], root.controls, root.device))
    _drop_unread(graph, root)


def _drop_unread(graph: Graph, root: Node) -> None:
    """Remove the nodes before a replaced one that nothing reads any more."""
    queue = [tensor.node for tensor in root.inputs]
    while queue:
        node = graph.nodes.get(queue.pop())
        if node is None or node.name in graph.fed or node.name in graph.fetched or not is_pure(node):
            continue
        if not graph.readers(node.name) and not graph.waiting(node.name):
            graph.remove(node.name)
            queue += [tensor.node for tensor in node.inputs]


def unmet_requirements(names: Sequence[str]) -> dict[str, list[str]]:
    """Return, by law, its requirements that no law before it ensures."""
    ensured: set[str] = set()
    unmet_needs: dict[str, list[str]] = {}
    for name in names:
        missing = [need for need in laws()[name].requires if need not in ensured]
        unmet_needs |= {name: missing} if missing else {}
        ensured |= set(laws()[name].ensures)
    return unmet_needs
