"""A switch whose condition is known has one live side, and the merge behind it nothing to choose.

    merge(f(x if true), g(x if false)) = f(x)

    before    Const(true) -> Switch; x -> Switch -> f, g -> Merge -> y
    after     x -> f -> y

The conditions of version 1, as `is_training` leaves them behind; `fold_branches` does the same for version 2. What is
on the dead side goes, with what waits for it. Needs: no loop, in which another round could bring the dead to life.
"""

import numpy as np

from tfopt.graph.operations import attributes
from tfopt.graph.report import Report
from tfopt.graph.rule import Maker, Whole
from tfopt.graph.view import Graph, Node, Tensor

NAME = "fold_switches"
LOOPS = {"Enter", "Exit", "LoopCond", "NextIteration", "RefEnter", "RefExit", "RefNextIteration", "RefMerge"}


def run(graph: Graph, report: Report) -> int:
    """Take one side of every switch on a constant."""
    fired = 0
    for switch in [node for node in graph.nodes.values() if node.op == "Switch"]:
        if switch.name not in graph.nodes:
            continue  # it was on the dead side of another
        if not graph.is_constant(switch.inputs[1]):
            report.refuse(NAME, switch.name, "the condition is not a constant")
            continue
        live = int(bool(graph.array(switch.inputs[1])))
        dead = _dead(graph, Tensor(switch.name, 1 - live))
        if isinstance(dead, str):
            report.refuse(NAME, switch.name, dead)
            continue
        _take(graph, switch, live, dead)
        report.fire(NAME, switch.name)
        fired += 1
    return fired


def _dead(graph: Graph, first: Tensor) -> set[str] | str:
    """The nodes that never run when a tensor never comes, merges excepted that another input reaches; or why not."""
    dead: set[str] = set()
    ahead = [reader for reader in graph.readers(first.node) if first in reader.inputs]
    while ahead:
        node = ahead.pop()
        if node.name in dead:
            continue
        if node.op in LOOPS:
            return f"the dead side reaches {node.op} of a loop"
        if node.op == "Merge":
            living = [tensor for tensor in node.inputs if tensor != first and tensor.node not in dead]
            if len(living) > 1:
                return "a merge on the dead side has more than two inputs"
            if living:
                continue
        if node.name in graph.fetched:
            return "an output of the graph is on the dead side"
        dead.add(node.name)
        ahead += [*graph.readers(node.name), *graph.waiting(node.name)]
    return dead


def _take(graph: Graph, switch: Node, live: int, dead: set[str]) -> None:
    lost = Tensor(switch.name, 1 - live)
    for merge in _merges(graph, lost, dead):
        place = next(at for at, tensor in enumerate(merge.inputs) if tensor != lost and tensor.node not in dead)
        chosen = Maker(graph, merge, merge.controls).constant("value_index", np.asarray(place, np.int32))
        graph.redirect(Tensor(merge.name, 1), chosen)
        _become_identity(graph, merge, merge.inputs[place])
    for name in dead:
        graph.remove(name)
    graph.redirect(Tensor(switch.name, live), Tensor(switch.name))
    _become_identity(graph, switch, switch.inputs[0])


def _merges(graph: Graph, lost: Tensor, dead: set[str]) -> list[Node]:
    readers = [reader for reader in graph.readers(lost.node) if lost in reader.inputs]
    readers += [reader for name in dead for reader in graph.readers(name)]
    return list({node.name: node for node in readers if node.name not in dead}.values())


def _become_identity(graph: Graph, node: Node, source: Tensor) -> None:
    """Keep the name, what waits for it and what it waits for; `drop_training_nodes` takes it away where it can."""
    made = attributes("Identity", {}, {"T": node.attr["T"].type})
    graph.remove(node.name)
    graph.insert(Node(node.name, "Identity", [source], node.controls, made, node.device))


LAW = Whole(run, requires=("direct edges", "folded constants"))
