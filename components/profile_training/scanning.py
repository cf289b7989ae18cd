"""Loops and Python in what the user wrote, found in the graph of one step and in that of the preprocessing, by line."""

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfopt.components.profile_training.tracing import PYTHON
from tfopt.training.dataset import Source

WHILES = ("While", "StatelessWhile")
COPIES = 16  # of an operation at one line of a Python loop
COUNTERS = ("AddV2", "Add")
WRITES = ("TensorListSetItem", "TensorListPushBack")


@dataclass(frozen=True)
class Loop:
    """What was found at a line.

    Attributes:
        where: ``step`` or ``preprocess``.
        kind: ``python`` (a function of Python is called), ``map_fn``, ``while``, or ``unrolled`` (a loop of Python that
            put the same operations into the graph again and again).
        line: In the module.
        code: That line.
        independent: Whether the rounds need nothing of each other; None where that was not settled.
        copies: Of the operation that is there most often.
        share: Of all operations of the graph.
    """

    where: str
    kind: str
    line: int
    code: str
    independent: bool | None
    copies: int
    share: float


def scan(model: Any, source: Source, batch: Any, module: Path) -> list[dict[str, Any]]:
    """Return what was found, in the step first; nothing of a graph that cannot be traced."""
    import tensorflow as tf

    found: list[Loop] = []
    eager, model.run_eagerly = model.run_eagerly, False
    try:
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, batch)
        found += _found("step", lambda *data: model.train_step(data), specs, module)
    except Exception:  # eager code that no graph can have
        found.append(Loop("step", "python", 0, "", None, 1, 1.0))
    finally:
        model.run_eagerly = eager
    records = source.stages()["read"].element_spec
    found += _found("preprocess", source.prepared, [records], module)
    return [asdict(loop) for loop in found if loop.kind != "python" or loop.line or eager]


def _found(where: str, function: Any, specs: Sequence[Any], module: Path) -> list[Loop]:
    import tensorflow as tf

    untouched = tf.autograph.experimental.do_not_convert(function)
    graph = tf.function(untouched).get_concrete_function(*specs).graph
    text = module.read_text(encoding="utf-8").splitlines()
    whole = graph.as_graph_def().library.function
    library = {function.signature.name: function for function in whole}
    by_line: dict[int, list[Any]] = defaultdict(list)
    total = 0
    for op in _operations(graph):
        total += 1
        lines = [frame.lineno for frame in op.traceback or () if frame.filename == str(module)]
        if lines:
            by_line[lines[-1]].append(op)
    loops = _python_loops(module)
    found = []
    for line, ops in sorted(by_line.items()):
        kinds = Counter(op.type for op in ops)
        copies = kinds.most_common(1)[0][1]
        code = text[line - 1].strip() if line <= len(text) else ""
        make = functools.partial(Loop, where, line=line, code=code, share=len(ops) / total)
        if any(kind in kinds for kind in PYTHON):
            found.append(make("python", independent=None, copies=1))
        elif whiles := [op for op in ops if op.type in WHILES]:
            mapped = any(Path(frame.filename).name == "map_fn.py" for frame in whiles[0].traceback)
            alone = mapped or _independent(library[whiles[0].get_attr("body").name])
            found.append(make("map_fn" if mapped else "while", independent=alone, copies=len(whiles)))
        elif copies >= COPIES and any(line in lines for lines in loops):
            found.append(make("unrolled", independent=None, copies=copies))
    return found


def _operations(graph: Any, seen: set[str] | None = None) -> Iterator[Any]:
    """Those of a graph and of the functions that it calls, but not of loops' bodies."""
    seen = seen if seen is not None else set()
    for op in graph.get_operations():
        yield op
        if op.type in ("PartitionedCall", "StatefulPartitionedCall"):
            name = op.get_attr("f").name
            inner = graph._functions.get(name) if hasattr(graph, "_functions") else None
            inner_graph = getattr(inner, "graph", None)
            if inner_graph is not None and name not in seen:
                seen.add(name)
                yield from _operations(inner_graph, seen)


def _independent(body: Any) -> bool:
    """Whether each thing that a round hands to the next is as it was, a counter, or a list with one more result."""
    nodes = {node.name: node for node in body.node_def}
    arguments = [argument.name for argument in body.signature.input_arg]
    for place, output in enumerate(body.signature.output_arg):
        name = body.ret[output.name].split(":")[0]
        while name in nodes and nodes[name].op == "Identity":
            name = nodes[name].input[0].split(":")[0]
        if name in arguments:
            same = arguments.index(name) == place
        else:
            first = [one.split(":")[0] for one in nodes[name].input if not one.startswith("^")]
            same = nodes[name].op in (*COUNTERS, *WRITES) and arguments[place] in first
            if same and nodes[name].op in COUNTERS:
                (other,) = [one for one in first if one != arguments[place]] or [""]
                same = other in nodes and nodes[other].op == "Const"
        if not same:
            return False
    return True


def _python_loops(module: Path) -> list[range]:
    """The lines of every loop that Python runs."""
    kinds = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in ast.walk(tree) if isinstance(node, kinds)
    ]
