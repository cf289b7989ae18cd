"""Measure the speedup of the laws that replace a loop of products by one batched product.

    python benchmarks/loops.py                       # tf.map_fn of softmax(x @ k) over 64 slices
    python benchmarks/loops.py --form parts          # parts of a matrix, each with a matrix and bias of its own
    python benchmarks/loops.py --form unstacked      # parts along the first axis, which need no Transpose
    python benchmarks/loops.py --slices 512 --rounds 50

Both graphs run alternately in one process on 2 threads. The ratio is that of the median times. The outputs are compared
first.
"""

import argparse
import time
from typing import Any

import numpy as np

CLEANING = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")
FORMS = {"map": "fuse_map_loops", "parts": "fuse_products_of_parts", "unstacked": "fuse_products_of_parts"}
SLICES = {"map": (64,), "parts": (4, 8, 16, 32, 64, 128), "unstacked": (4, 8, 16, 32, 64, 128)}


def main() -> None:
    """Measure, and print a line for each number of slices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=FORMS, default="map")
    parser.add_argument("--slices", type=int, nargs="*", help="by default 64, and for parts 4 to 128")
    parser.add_argument("--rows", type=int, default=16, help="of a part")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    for slices in arguments.slices or SLICES[arguments.form]:
        measure(arguments.form, slices, arguments.rows, arguments.rounds)


def measure(form: str, slices: int, rows: int, rounds: int) -> None:
    """Fuse one loop, compare the outputs, and print the times."""
    import tensorflow as tf

    from tfopt.graph.law_runner import run
    from tfopt.graph.mutable_graph import Graph
    from tfopt.graph.report import Report

    draw = np.random.default_rng(0)
    with tf.Graph().as_default() as source:
        shape = (
            _add_map(tf, draw) if form == "map" else _add_parts(tf, draw, slices, rows, unstacked=form == "unstacked")
        )
    before, report, law = source.as_graph_def(), Report(), FORMS[form]
    graph = Graph.of(before, fed=["x"], fetched=["y"])
    run((*CLEANING, law, "strip_unused"), graph, report)
    feeds = {"x:0": draw.normal(size=[size or slices for size in shape]).astype("float32")}
    loop, fused = (_session(tf, each) for each in (before, graph.to_graph_def()))
    error = np.abs(loop.run("y:0", feeds) - fused.run("y:0", feeds)).max()
    times = np.asarray([[time_call(each, feeds) for each in (loop, fused)] for _ in range(rounds)])
    slow, fast = np.median(times, axis=0) * 1e3
    fired = len(report.fired[law])
    print(
        f"{slices} slices, {fired} loop fused: {slow:.2f} ms -> {fast:.2f} ms, {slow / fast:.2f}x; {error=:.1e}",
        flush=True,
    )


def _add_map(tf: Any, draw: np.random.Generator) -> tuple[int | None, ...]:
    """Add a map over slices of 16x32 to the default graph, and return the shape of its input."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 16, 32], name="x")
    kernel = tf.constant(draw.normal(size=(32, 32)), tf.float32)
    tf.identity(tf.map_fn(lambda part: tf.nn.softmax(part @ kernel), x), name="y")
    return None, 16, 32


def _add_parts(tf: Any, draw: np.random.Generator, count: int, rows: int, *, unstacked: bool) -> tuple[int | None, ...]:
    """Add a product of each of ``count`` parts, with its own matrix and bias, to the default graph."""
    shape = (count, rows, 32) if unstacked else (rows, 32 * count)
    x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
    products = []
    for part in tf.unstack(x) if unstacked else tf.split(x, count, axis=1):
        kernel, bias = (tf.constant(draw.normal(size=size), tf.float32) for size in ((32, 32), (32,)))
        products.append(tf.nn.bias_add(part @ kernel, bias))
    tf.identity(tf.stack(products) if unstacked else tf.concat(products, 1), name="y")
    return shape


def _session(tf: Any, graph_def: Any) -> Any:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    return tf.compat.v1.Session(graph=graph, config=config)


def time_call(session: Any, feeds: dict[str, Any]) -> float:
    """Return the seconds of a call that computes ``y``."""
    start = time.perf_counter()
    session.run("y:0", feeds)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
