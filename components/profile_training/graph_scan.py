"""Loops and Python in what the user wrote, found in the graph of one step and in that of the preprocessing, by line."""

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfopt.components.profile_training.trace_events import BACKWARD, PYTHON
from tfopt.training.dataset import Source

WHILES = ("While", "StatelessWhile")
COPIES = 16  # of an operation at one line of a Python loop
COUNTERS = ("AddV2", "Add")
WRITES = ("TensorListSetItem", "TensorListPushBack")
FREE = ("Const", "Identity", "Placeholder", "NoOp")


@dataclass(frozen=True)
class Loop:
    """What was found at a line.

    Attributes:
        where: ``step`` or ``preprocess``.
        kind: ``python`` (a function of Python is called), ``map_fn``, ``while``, or ``unrolled`` (a loop of Python that
            put the same operations into the graph again and again).
        line: In the module.
        code: That line.
        independent: Whether the rounds need nothing of each other; None where there are none.
        copies: Of the operation that is there most often.
        operations: Their names, in the graph.
        runs: Of all operations that run once, those of this line, each as often as its loop goes round.
        forward: Of the same, those that are no gradient's.
    """

    where: str
    kind: str
    line: int
    code: str
    independent: bool | None
    copies: int
    operations: list[str]
    runs: float = 0.0
    forward: float = 0.0


def scan(model: Any, source: Source, batch: Any, module: Path) -> list[dict[str, Any]]:
    """Return what was found, in the step first; nothing of a graph that cannot be traced."""
    import tensorflow as tf

    found: list[Loop] = []
    eager, model.run_eagerly = model.run_eagerly, False
    try:
        specs = tf.nest.map_structure(tf.type_spec_from_value, batch)
        found += _found("step", lambda *data: model.train_step(data), specs, module)
    except Exception:  # eager code that no graph can have
        found.append(Loop("step", "python", 0, "", None, 1, []))
    finally:
        model.run_eagerly = eager
    records = source.stages(1)["read"].element_spec
    found += _found("preprocess", source.prepared, [records], module)
    return [asdict(loop) for loop in found if loop.kind != "python" or loop.line or eager]


def _found(where: str, function: Any, specs: Sequence[Any], module: Path) -> list[Loop]:
    import tensorflow as tf

    untouched = tf.autograph.experimental.do_not_convert(function)
    graph = tf.function(untouched).get_concrete_function(*specs).graph
    text = module.read_text(encoding="utf-8").splitlines()
    whole = graph.as_graph_def().library.function
    library = {function.signature.name: function for function in whole}
    by_line: dict[int, dict[str, Any]] = defaultdict(dict)
    runs: Counter[int] = Counter()
    forward = 0
    for name, op in _operations(graph):
        count = _runs(op, library, specs)
        forward += 0 if BACKWARD in name else count
        lines = [frame.lineno for frame in op.traceback or () if frame.filename == str(module)]
        line = lines[-1] if lines else 0
        runs[line] += count
        by_line[line][name] = op
    by_line.pop(0, None)
    loops = _python_loops(module)
    found = []
    for line, named in sorted(by_line.items()):
        kinds = Counter(op.type for op in named.values())
        copies = kinds.most_common(1)[0][1]
        code = text[line - 1].strip() if line <= len(text) else ""
        every = runs.total()
        part, rest = runs[line] / every, forward / every
        make = functools.partial(Loop, where, line=line, code=code, runs=part, forward=rest)
        python = [name for name, op in named.items() if op.type in PYTHON]
        whiles = [name for name, op in named.items() if op.type in WHILES]
        if python:
            found.append(make("python", independent=None, copies=1, operations=python))
        elif whiles:
            first = named[whiles[0]]
            mapped = any(Path(frame.filename).name == "map_fn.py" for frame in first.traceback)
            alone = mapped or _independent(library[first.get_attr("body").name])
            kind = "map_fn" if mapped else "while"
            found.append(make(kind, independent=alone, copies=len(whiles), operations=whiles))
        elif copies >= COPIES and any(line in lines for lines in loops):
            often = [kind for kind, copies in kinds.items() if copies >= COPIES]
            alike = [[op for op in named.values() if op.type == kind] for kind in often]
            if not any(map(_chained, alike)):  # layers on top of each other are, and no fault
                found.append(make("unrolled", independent=True, copies=copies, operations=list(named)))
    return found


def _operations(graph: Any, path: str = "", seen: set[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Those of a graph and of the functions that it calls, but not of loops' bodies, with their names when it runs."""
    seen = seen if seen is not None else set()
    for op in graph.get_operations():
        yield path + op.name, op
        if op.type in ("PartitionedCall", "StatefulPartitionedCall"):
            name = op.get_attr("f").name
            inner = graph._functions.get(name) if hasattr(graph, "_functions") else None
            inner_graph = getattr(inner, "graph", None)
            if inner_graph is not None and name not in seen:
                seen.add(name)
                yield from _operations(inner_graph, f"{path}{op.name}/", seen)


def _runs(op: Any, library: Mapping[str, Any], specs: Any) -> int:
    """How many operations run for it, those of a loop as often as it goes round, as far as that is known before."""
    import tensorflow as tf

    if op.type not in WHILES:
        return int(op.type not in FREE)
    most = tf.get_static_value(op.inputs[1])
    rounds = int(most) if most is not None and most > 0 else tf.nest.flatten(specs)[0].shape[0]  # one for each example
    return (rounds or 1) * sum(node.op not in FREE for node in library[op.get_attr("body").name].node_def)


def _chained(copies: Sequence[Any]) -> bool:
    """Whether the last of them needs half of the others: then a round needs the one before."""
    waiting, above = [copies[-1]], set()
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op.name not in above:
                above.add(tensor.op.name)
                waiting.append(tensor.op)
    return sum(op.name in above for op in copies) >= len(copies) / 2


def _independent(body: Any) -> bool:
    """Whether each thing that a round hands to the next is as it was, a counter, or a list with one more result."""
    nodes = {node.name: node for node in body.node_def}
    arguments = [argument.name for argument in body.signature.input_arg]
    handed = []
    for output in body.signature.output_arg:
        name = _node(body.ret[output.name])
        while name in nodes and nodes[name].op == "Identity":
            name = _node(nodes[name].input[0])
        handed.append(name)
    same = {argument for argument, name in zip(arguments, handed, strict=True) if argument == name}
    same |= {name for name, node in nodes.items() if node.op == "Const"}
    for argument, name in zip(arguments, handed, strict=True):
        if argument == name:
            continue
        if name not in nodes or argument not in (first := list(map(_node, nodes[name].input))):
            return False
        counted = nodes[name].op in COUNTERS and set(first) - {argument} <= same
        read = any(argument in map(_node, node.input) for other, node in nodes.items() if other != name)
        if not counted and (nodes[name].op not in WRITES or read):
            return False
    return True


def _node(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]


def _python_loops(module: Path) -> list[range]:
    """The lines of every loop that Python runs."""
    kinds = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in ast.walk(tree) if isinstance(node, kinds)
    ]
