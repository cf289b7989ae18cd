"""Tries local laws until none fires any more, and guarantees what no law need look after.

What a law matched and removes is read by nobody else, has no name that is asked for from outside, and nobody waits for
it. Control edges into it are kept, and in control flow of version 1 so is on which side of a switch the result comes.
Constants that others read too are copied, never edited. The result has the data type and the name of what it stands
for.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from tfopt.graph.control_flow_v1 import CONTROL, SWITCHES, Condition, conditions, is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity, output_types
from tfopt.graph.pattern import Binding, Op, bindings, depth
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PER_NODE = 20  # firings, on average: a law that undoes another one must not go on for ever


def apply(rules: Mapping[str, Rule], graph: Graph, report: Report) -> int:
    """Try laws everywhere until none fires, and return how often one did.

    A firing makes the nodes around it be looked at again and no others, so that the time grows as the graph does.

    Args:
        rules: By name; where several hold at a node the first is taken.
        graph: Is changed.
        report: Is told what fired and what was refused.

    Raises:
        RuntimeError: When laws go on firing without end; addressed to their author.
    """
    by_op: dict[str, list[tuple[str, Rule, Op]]] = {}
    for name, rule in rules.items():
        for pattern in rule.patterns:
            for op in pattern.ops:
                by_op.setdefault(op, []).append((name, rule, pattern))
    reach = max((depth(pattern) for rule in rules.values() for pattern in rule.patterns), default=0)
    waiting = dict.fromkeys(node.name for node in graph.of_op(*by_op))
    fired, most, queue = 0, PER_NODE * len(graph.nodes), deque(waiting)
    framed = is_framed(graph)
    while queue:
        name = queue.popleft()
        waiting.pop(name, None)
        if name not in graph.nodes or not _try(by_op.get(graph.nodes[name].op, []), graph, name, report, framed):
            continue
        fired += 1
        if fired > most:
            raise RuntimeError(f"{', '.join(rules)}: still firing after {most} times; a law undoes another one")
        for near in _surroundings(graph, reach):
            if near not in waiting and graph.nodes[near].op in by_op:
                waiting[near] = None
                queue.append(near)
        graph.touched.clear()
    return fired


def _try(candidates: list[tuple[str, Rule, Op]], graph: Graph, name: str, report: Report, framed: bool) -> bool:
    refusals: dict[str, str] = {}  # of several patterns of a law the first gives the reason: it is the larger one
    for law, rule, pattern in candidates:
        for binding in bindings(pattern, graph, Tensor(name)):
            match = Match(graph, binding)
            reason = _refusal(graph, binding) or rule.when(match)
            if reason is None:
                report.fire(law, name)
                graph.touched.clear()
                _fire(rule, match, framed)
                return True
            refusals.setdefault(law, reason)
    for law, reason in refusals.items():
        report.refuse(law, name, reason)
    return False


def _refusal(graph: Graph, binding: Binding) -> str | None:
    """What no law may do."""
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
    if root.op == "Identity" and (root.name in graph.fetched or root.controls):  # what the engine leaves for a drop
        return "the Identity is an output of the graph, or carries a control edge"
    missing = [role for role in binding.constants if not graph.is_constant(binding.tensors[role])]
    return f"the {missing[0]} is not a constant" if missing else None


def _fire(rule: Rule, match: Match, framed: bool) -> None:
    graph, root = match.graph, match.node()
    constants = [graph.nodes[match.tensor(role).node] for role in match.binding.constants]
    controls = list(dict.fromkeys(name for node in constants for name in node.controls))
    maker = Maker(graph, root, controls)
    needed = conditions(graph, [Tensor(root.name)]) if framed or controls else set()
    result = rule.rewrite(match, maker)
    types = output_types(graph.nodes[result.node])[result.output :][:1], output_types(root)[:1]
    if types[0] != types[1]:
        raise TypeError(f"{root.op} {root.name} became {result}, of another data type")
    removed = [node for node in match.binding.nodes.values() if node is not root]
    edges = dict.fromkeys(name for node in [root, *removed] for name in node.controls)
    edges |= dict.fromkeys(_kept(match, needed, result, edges))
    _replace(graph, root, result, [name for name in edges if name not in {node.name for node in removed}], maker.made)
    for node in removed:
        graph.remove(node.name)
    for made, name in maker.heirs.items():
        if made in graph.nodes and name not in graph.nodes:
            graph.rename(made, name)
    for node in [*constants, *(graph.nodes[name] for name in maker.made if name in graph.nodes)]:
        _drop_if_unread(graph, node)


def _kept(match: Match, needed: set[Condition], result: Tensor, edges: Iterable[str]) -> Iterator[str]:
    """What a result must wait for, to come only where the root came: what it no longer reads may be on a dead side."""
    if not needed:
        return
    graph = match.graph
    found = conditions(graph, [result, *(Tensor(name, CONTROL) for name in edges)])
    for role, tensor in match.binding.tensors.items():
        own = conditions(graph, [tensor])
        if not needed & own <= found:
            found |= own
            yield _pivot(match, role) if graph.nodes[tensor.node].op in SWITCHES else tensor.node


def _pivot(match: Match, role: str) -> str:
    """An Identity of a tensor: who waits for a switch waits for neither of its sides."""
    tensor, graph = match.tensor(role), match.graph
    name = graph.fresh(f"{match.node().name}/{role}_comes")
    kind = output_types(graph.nodes[tensor.node])[tensor.output]
    graph.insert(identity(name, tensor, kind, device=match.node().device))
    return name


def _replace(graph: Graph, root: Node, result: Tensor, controls: list[str], made: list[str]) -> None:
    """Put the result where the root was: under the root's name if it was made for it, else as what all now read."""
    graph.know_shape(result, Tensor(root.name))
    if result.node in made:
        new = graph.remove(result.node)
        graph.remove(root.name)
        graph.insert(Node(root.name, new.op, new.inputs, new.controls, new.attr, new.device))
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


def _drop_if_unread(graph: Graph, node: Node) -> None:
    unread = node.name in graph.nodes and not graph.readers(node.name) and not graph.waiting(node.name)
    if unread and node.op == "Const" and node.name not in graph.fetched | graph.fed:
        graph.remove(node.name)


def _surroundings(graph: Graph, reach: int) -> Iterator[str]:
    """What was touched, its readers, and theirs as far as a law reaches; beyond a node that several read none does."""
    level = [name for name in graph.touched if name in graph.nodes]
    yield from level
    for step in range(reach):
        level = [reader.name for name in level if step == 0 or graph.uses(name) == 1 for reader in graph.readers(name)]
        yield from level


def _word(role: str, node: Node) -> str:
    return node.op if role == "root" else f"{role} {node.op}"
