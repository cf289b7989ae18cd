"""Find loops and Python calls of the user's code in the graphs of a training step and the preprocessing, by line."""

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfopt.components.profile_training.trace_events import BACKWARD, PYTHON_OPS, Loop
from tfopt.training.datasets.dataset import Source

WHILE_OPS = ("While", "StatelessWhile")
MIN_COPIES = 16  # of an operation at one line, to count as an unrolled loop
COUNTER_OPS = ("AddV2", "Add")
LIST_WRITE_OPS = ("TensorListSetItem", "TensorListPushBack")
FREE_OPS = ("Const", "Identity", "Placeholder", "NoOp")


def scan_graphs(model: Any, source: Source, batch: Any, module: Path) -> list[Loop]:
    """Return the loops of the step and of the preprocessing, in this order; none of a graph that cannot be traced."""
    loops: list[Loop] = []
    eager, model.run_eagerly = model.run_eagerly, False
    try:
        specs = tf.nest.map_structure(tf.type_spec_from_value, batch)
        loops += _scan("step", lambda *data: model.train_step(data), specs, module)
    except Exception:  # eager code may not be traceable
        loops.append(Loop("step", "python", 0, "", independent=None, copies=1, runs=0.0, forward=0.0, ms=None))
    finally:
        model.run_eagerly = eager
    records = source.stage_datasets(1)["read"].element_spec
    loops += _scan("preprocess", source.prepare, [records], module)
    return [loop for loop in loops if loop.kind != "python" or loop.line or eager]


def _scan(where: str, function: Any, specs: Sequence[Any], module: Path) -> list[Loop]:
    graph = tf.function(tf.autograph.experimental.do_not_convert(function)).get_concrete_function(*specs).graph
    text = module.read_text(encoding="utf-8").splitlines()
    library = {function.signature.name: function for function in graph.as_graph_def().library.function}
    ops_by_line: dict[int, dict[str, tf.Operation]] = defaultdict(dict)
    runs: Counter[int] = Counter()
    forward = 0
    for name, op in _operations(graph):
        count = _run_count(op, library, specs)
        forward += 0 if BACKWARD in name else count
        lines = [frame.lineno for frame in op.traceback or () if frame.filename == str(module)]
        line = lines[-1] if lines else 0
        runs[line] += count
        ops_by_line[line][name] = op
    ops_by_line.pop(0, None)
    python_loops = _python_loops(module)
    loops = []
    for line, ops in sorted(ops_by_line.items()):
        code = text[line - 1].strip() if line <= len(text) else ""
        own_share, forward_share = runs[line] / runs.total(), forward / runs.total()
        make = functools.partial(Loop, where, line=line, code=code, runs=own_share, forward=forward_share, ms=None)
        is_in_loop = any(line in lines for lines in python_loops)
        if loop := _classify(ops, library, is_in_loop, make):
            loops.append(loop)
    return loops


def _classify(
    ops: Mapping[str, Any], library: Mapping[str, Any], is_in_loop: bool, make: Callable[..., Loop]
) -> Loop | None:
    """Return the loop that the operations of a line form; None if they form none."""
    python = [name for name, op in ops.items() if op.type in PYTHON_OPS]
    if python:
        return make("python", independent=None, copies=1, operations=python)
    whiles = [name for name, op in ops.items() if op.type in WHILE_OPS]
    if whiles:
        first = ops[whiles[0]]
        is_map = any(Path(frame.filename).name == "map_fn.py" for frame in first.traceback)
        independent = is_map or _is_independent(library[first.get_attr("body").name])
        kind = "map_fn" if is_map else "while"
        return make(kind, independent=independent, copies=len(whiles), operations=whiles)
    kinds = Counter(op.type for op in ops.values())
    copies = kinds.most_common(1)[0][1]
    if copies >= MIN_COPIES and is_in_loop:
        frequent = [kind for kind, count in kinds.items() if count >= MIN_COPIES]
        groups = [[op for op in ops.values() if op.type == kind] for kind in frequent]
        if not any(map(_are_chained, groups)):  # consecutive layers are chained, which is not a fault
            return make("unrolled", independent=True, copies=copies, operations=list(ops))
    return None


def _operations(graph: Any, path: str = "", seen: set[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the operations, with their names at run time, of a graph and its called functions, without loop bodies."""
    seen = seen if seen is not None else set()
    for op in graph.get_operations():
        yield path + op.name, op
        if op.type in ("PartitionedCall", "StatefulPartitionedCall"):
            name = op.get_attr("f").name
            if name in graph._functions and name not in seen:
                seen.add(name)
                yield from _operations(graph._functions[name].graph, f"{path}{op.name}/", seen)


def _run_count(op: Any, library: Mapping[str, Any], specs: Any) -> int:
    """Return how many operations run for this one; those of a loop body count per round, if the rounds are known."""
    if op.type not in WHILE_OPS:
        return int(op.type not in FREE_OPS)
    limit = tf.get_static_value(op.inputs[1])
    rounds = int(limit) if limit is not None and limit > 0 else tf.nest.flatten(specs)[0].shape[0]  # one per example
    return (rounds or 1) * sum(node.op not in FREE_OPS for node in library[op.get_attr("body").name].node_def)


def _are_chained(copies: Sequence[Any]) -> bool:
    """Return True if the last copy depends on half of the others: then a round needs the one before."""
    waiting, ancestors = [copies[-1]], set()
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op.name not in ancestors:
                ancestors.add(tensor.op.name)
                waiting.append(tensor.op)
    return sum(op.name in ancestors for op in copies) >= len(copies) / 2


def _is_independent(body: Any) -> bool:
    """Return True if each loop variable is unchanged, a counter, or a list that gets one more result per round."""
    nodes = {node.name: node for node in body.node_def}
    arguments = [argument.name for argument in body.signature.input_arg]
    results = []
    for output in body.signature.output_arg:
        name = _node_name(body.ret[output.name])
        while name in nodes and nodes[name].op == "Identity":
            name = _node_name(nodes[name].input[0])
        results.append(name)
    constant = {argument for argument, name in zip(arguments, results, strict=True) if argument == name}
    constant |= {name for name, node in nodes.items() if node.op == "Const"}
    for argument, name in zip(arguments, results, strict=True):
        if argument == name:
            continue
        if name not in nodes or argument not in (inputs := list(map(_node_name, nodes[name].input))):
            return False
        is_counter = nodes[name].op in COUNTER_OPS and set(inputs) - {argument} <= constant
        is_read = any(argument in map(_node_name, node.input) for other, node in nodes.items() if other != name)
        if not is_counter and (nodes[name].op not in LIST_WRITE_OPS or is_read):
            return False
    return True


def _node_name(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]


def _python_loops(module: Path) -> list[range]:
    kinds = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in ast.walk(tree) if isinstance(node, kinds)
    ]
