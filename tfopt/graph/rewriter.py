"""Rewriter: apply a local law until it fires nowhere, with the checks that all laws share.

A node that a law removes has no other reader, is not fetched, and has no outgoing control edge. Control edges into it
are moved to the result. In control flow of TensorFlow 1, the result is computed under the same conditions as the
original. Constants with other readers are copied, never edited. The result has the dtype and the name of the node that
it replaces.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.control_flow_v1 import CONTROL, SWITCHES, Condition, conditions, is_framed
from tfopt.graph.matching.pattern import Binding, bindings, depth
from tfopt.graph.matching.zero_signs import sign_of_zero_matters
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity, output_types
from tfopt.graph.report import Report

PER_NODE = 20  # firings, on average: more means that a law undoes what it did


def apply(law_name: str, law: LocalLaw, graph: Graph, report: Report) -> int:
    """Apply a law at all nodes until it fires nowhere, and return the number of firings.

    After a firing, only the nodes around it are tried again, so that the time is linear in the size of the graph.

    Raises:
        RuntimeError: If the law fires without end, which is an error of its author.
    """
    ops = {op for pattern in law.patterns for op in pattern.ops}
    reach = max(map(depth, law.patterns), default=0)
    waiting = dict.fromkeys(node.name for node in graph.of_op(*ops))
    fired, most, queue = 0, PER_NODE * len(graph.nodes), deque(waiting)
    framed = is_framed(graph)
    while queue:
        name = queue.popleft()
        waiting.pop(name, None)
        if name not in graph.nodes or not _try(law_name, law, graph, name, report, framed):
            continue
        fired += 1
        if fired > most:
            raise RuntimeError(f"{law_name}: still firing after {most} times; the law undoes what it did")
        for near in _surroundings(graph, reach):
            if near not in waiting and graph.nodes[near].op in ops:
                waiting[near] = None
                queue.append(near)
        graph.touched.clear()
    return fired


def _try(law_name: str, law: LocalLaw, graph: Graph, name: str, report: Report, framed: bool) -> bool:
    refusal = None  # of the first pattern that matches, which is the largest
    for pattern in law.patterns:
        for binding in bindings(pattern, graph, Tensor(name)):
            match = Match(graph, binding)
            reason = _refusal(graph, binding) or law.when(match)
            if reason is None and law.changes_zero_signs and sign_of_zero_matters(graph, name, in_other_graphs=False):
                reason = "zeros would have the other sign, and an operation depends on it"
            if reason is None:
                report.fire(law_name, name)
                graph.touched.clear()
                _fire(law, match, framed)
                return True
            refusal = refusal or reason
    if refusal:
        report.refuse(law_name, name, refusal)
    return False


def _refusal(graph: Graph, binding: Binding) -> str | None:
    root = binding.nodes["root"]
    for role, node in binding.nodes.items():
        if node.name in graph.fed:
            return f"the {_word(role, node)} is fed from outside"
        if node is root:
            continue
        if node.name in graph.fetched:
            return f"the {_word(role, node)} is an output of the graph as well"
        if graph.uses(node.name) != 1:
            return f"the {_word(role, node)} has {graph.uses(node.name)} consumers"
        if graph.waiting(node.name):
            return f"another node waits for the {_word(role, node)} by a control edge"
    if root.name in graph.fetched and len(output_types(root)) > 1:
        return f"the {_word('root', root)} is an output of the graph, and gives several"
    for reader in graph.readers(root.name):
        if any(tensor.node == root.name and tensor.output for tensor in reader.inputs):
            return f"not only the first output of the {_word('root', root)} is read"
    if root.op == "Identity" and (root.name in graph.fetched or root.controls):  # left by an earlier law
        return "the Identity is an output of the graph, or carries a control edge"
    missing = [role for role in binding.constants if not graph.is_constant(binding.tensors[role])]
    return f"the {missing[0]} is not a constant" if missing else None


def _fire(law: LocalLaw, match: Match, framed: bool) -> None:
    graph, root = match.graph, match.node()
    constants = [graph.nodes[match.tensor(role).node] for role in match.binding.constants]
    controls = list(dict.fromkeys(name for node in constants for name in node.controls))
    maker = Maker(graph, root, controls)
    needed = conditions(graph, [Tensor(root.name)]) if framed or controls else set()
    result = law.rewrite(match, maker)
    types = output_types(graph.nodes[result.node])[result.output :][:1], output_types(root)[:1]
    if types[0] != types[1]:
        raise TypeError(f"{root.op} {root.name} became {result}, of another data type")
    removed = [node for node in match.binding.nodes.values() if node is not root]
    edges = dict.fromkeys(name for node in [root, *removed] for name in node.controls)
    edges |= dict.fromkeys(_extra_controls(match, needed, result, edges))
    _replace(graph, root, result, [name for name in edges if name not in {node.name for node in removed}], maker.made)
    for node in removed:
        graph.remove(node.name)
    for made, name in maker.heirs.items():
        if made in graph.nodes and name not in graph.nodes:
            graph.rename(made, name)
    for node in [*constants, *(graph.nodes[name] for name in maker.made if name in graph.nodes)]:
        is_unread = node.name in graph.nodes and not graph.readers(node.name) and not graph.waiting(node.name)
        if is_unread and node.op == "Const" and node.name not in graph.fetched | graph.fed:
            graph.remove(node.name)


def _extra_controls(match: Match, needed: set[Condition], result: Tensor, edges: Iterable[str]) -> Iterator[str]:
    """Yield control inputs with which the result is computed only under the conditions of the root.

    A tensor that the result no longer reads may come from a dead branch of a Switch.
    """
    if not needed:
        return
    graph = match.graph
    present = conditions(graph, [result, *(Tensor(name, CONTROL) for name in edges)])
    for role, tensor in match.binding.tensors.items():
        own = conditions(graph, [tensor])
        if not needed & own <= present:
            present |= own
            yield _pivot(match, role) if graph.nodes[tensor.node].op in SWITCHES else tensor.node


def _pivot(match: Match, role: str) -> str:
    """Insert an Identity of a Switch output and return its name: a control edge from a Switch ignores the branch."""
    tensor, graph = match.tensor(role), match.graph
    name = graph.fresh(f"{match.node().name}/{role}_comes")
    kind = output_types(graph.nodes[tensor.node])[tensor.output]
    graph.insert(identity(name, tensor, kind, device=match.node().device))
    return name


def _replace(graph: Graph, root: Node, result: Tensor, controls: list[str], made: list[str]) -> None:
    """Replace the root by the result: under the name of the root if the result is new, else by redirecting readers."""
    graph.know_shape(result, Tensor(root.name))
    if result.node in made:
        new = graph.remove(result.node)
        graph.replace(root, op=new.op, inputs=new.inputs, controls=new.controls, attr=new.attr, device=new.device)
        graph.wait_for(root.name, [*new.controls, *controls])
        return
    if root.name in graph.fetched or controls:
        graph.remove(root.name)
        graph.insert(identity(root.name, result, output_types(root)[0], controls, root.device))
        return
    graph.redirect(Tensor(root.name), result)
    for other in graph.waiting(root.name):
        graph.wait_for(other.name, [*(name for name in other.controls if name != root.name), result.node])
    graph.remove(root.name)


def _surroundings(graph: Graph, reach: int) -> Iterator[str]:
    """Yield touched nodes and their readers up to ``reach`` steps; patterns end at a node with several readers."""
    level = [name for name in graph.touched if name in graph.nodes]
    yield from level
    for step in range(reach):
        level = [reader.name for name in level if step == 0 or graph.uses(name) == 1 for reader in graph.readers(name)]
        yield from level


def _word(role: str, node: Node) -> str:
    return node.op if role == "root" else f"{role} {node.op}"
