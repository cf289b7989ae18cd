"""The graph laws: time against nodes, what is left of six backbones, and what that is worth.

    python benchmarks/graph.py                                # nodes 1,000 to 100,000, then all models of both Kerases
    python benchmarks/graph.py --models MobileNetV2 --keras keras
    python benchmarks/graph.py --models MobileNetV2 --keras keras --latency [--seconds 20]   # a quiet machine; minutes

The models have random weights and moved batch-norm statistics. ``error`` is the largest difference from the parent, in
units of the range of the worst output. ``--latency`` runs `tfopt benchmark` on the plain SavedModel, the same saved
after Grappler alone, after `optimize_graph`, and compiled by XLA, with oneDNN off and on, each in a process of its own.
Goals: under 10 s at 50,000 nodes; no batch norm left that can be folded; error at most 1e-4.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

SIZES = (1_000, 3_000, 10_000, 30_000, 50_000, 100_000)
MODELS = ("MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "Xception", "InceptionV3")


def main() -> None:
    """Measure, print tables, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=None, choices=MODELS, help="only these, and no time table")
    parser.add_argument("--keras", nargs="*", default=["keras", "tf_keras"], choices=["keras", "tf_keras"])
    parser.add_argument("--latency", action="store_true", help="measure latency at batch 1 and 32 too")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each contender is measured")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the child: contenders below this folder
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.seconds)
        return
    found: dict[str, Any] = {} if given.models else {"seconds by nodes": times()}
    for name in given.models or MODELS:
        for library in given.keras:
            with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
                row = one_model(name, library, Path(folder))
                if given.latency:
                    row["latency"] = latency(Path(folder), given.seconds)
            found[f"{name}, {library}"] = row
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def times() -> dict[int, float]:
    """Seconds that all laws take on graphs of dense layers, each with its batch norm, by number of nodes."""
    from tfopt.graph.passes import ORDER, run
    from tfopt.graph.report import Report
    from tfopt.graph.view import Graph

    print(f"{'nodes':>8} {'after':>8} {'seconds':>8} {'microseconds a node':>20}")
    found = {}
    for size in SIZES:
        graph_def = layers(size)
        start = time.perf_counter()
        graph = Graph.of(graph_def, fed=["x"], fetched=["y"])
        run([name for name, _ in ORDER], graph, Report())
        after = len(graph.to_graph_def().node)
        found[len(graph_def.node)] = seconds = time.perf_counter() - start
        print(f"{len(graph_def.node):8} {after:8} {seconds:8.2f} {1e6 * seconds / len(graph_def.node):20.0f}")
    return found


def layers(size: int) -> Any:
    """About so many nodes: MatMul, the batch norm as Keras 3 exports it, Relu, Identity. Copies of one block."""
    import numpy as np
    import tensorflow as tf

    draw = np.random.default_rng(0)
    with tf.Graph().as_default() as block:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        flow = tf.matmul(x, draw.normal(0, 0.3, (8, 8)).astype("float32"))
        scale = tf.math.rsqrt(tf.constant(draw.uniform(0.5, 2, 8), tf.float32) + 1e-3)
        flow = flow * scale + (tf.constant(draw.normal(0, 1, 8), tf.float32) - scale)
        tf.identity(tf.nn.relu(flow), name="y")
    first, *others = block.as_graph_def().node
    made = tf.compat.v1.GraphDef(node=[first], versions=block.as_graph_def().versions)
    before = "x"
    for number in range(size // len(others)):
        for node in others:
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.name = f"{number}/{node.name}"
            copy.input[:] = [before if name == "x" else f"{number}/{name}" for name in node.input]
        before = f"{number}/y"
    made.node.add(name="y", op="Identity", input=[before]).attr["T"].type = tf.float32.as_datatype_enum
    return made


def one_model(name: str, library: str, folder: Path) -> dict[str, Any]:
    """Export a model, optimize it, and print a row; contenders for the latency stay in the folder."""
    import logging

    from tfopt.artifacts import SavedModel
    from tfopt.components.optimize_graph.component import optimize_graph

    export(name, library, folder / "plain")
    start = time.perf_counter()
    optimized = optimize_graph(folder / "plain", folder / "optimized", passes=["portable"])["optimized"]
    seconds = time.perf_counter() - start
    card = SavedModel(optimized.path).card
    report, outputs = card["report"], card["verified"]["outputs"]
    left = Counter(reason.split(" '")[0] for reason in report["batch_norms_left"].values())
    row = {
        "nodes": [report["passes"][0]["nodes"][0], card["nodes"]],
        "error": max(facts["relative_error"] for facts in outputs.values()),
        "batch norms left": dict(left),
        "taken back": report["taken_back"],
        "seconds": seconds,
    }
    print(
        f"{name} ({library}): nodes {row['nodes'][0]} -> {row['nodes'][1]}, error {row['error']:.1e}, {seconds:.0f} s"
    )
    for reason, count in left.items():
        print(f"    {count} batch norms left: {reason}")
    for law, reason in row["taken back"].items():
        print(f"    {law} taken back: {reason}")
    logging.getLogger("tfopt").debug("%s", report["fired"])
    return row


def export(name: str, library: str, folder: Path) -> None:
    """Write a backbone with random weights whose batch norms have statistics far from trivial."""
    import numpy as np

    keras = importlib.import_module(library)
    keras.utils.set_random_seed(0)
    model, draw = getattr(keras.applications, name)(weights=None), np.random.default_rng(0)
    for layer in model.layers:
        if "BatchNormalization" in type(layer).__name__:
            for weight in layer.weights:
                positive = "variance" in weight.name or "gamma" in weight.name
                weight.assign(draw.uniform(0.5, 2, weight.shape) if positive else draw.normal(0, 0.5, weight.shape))
    model.export(str(folder))


def latency(folder: Path, seconds: float) -> dict[str, Any]:
    """Measure the contenders with oneDNN off and on, and print ratios to the plain SavedModel."""
    found = {}
    for setting in ("0", "1"):
        words = [sys.executable, __file__, "--measure", str(folder), "--seconds", str(seconds)]
        subprocess.run(words, check=True, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": setting})
        rows = json.loads((folder / "measured.json").read_text())
        found["oneDNN on" if setting == "1" else "oneDNN off"] = rows
        for row in rows:
            ratios = [
                f"{row['speedup'][size]['ratio']:.2f} {row['speedup'][size]['verdict']}" for size in row["speedup"]
            ]
            load = row.get("load_seconds")
            print(
                f"    oneDNN {setting} {row['name']:10} {' / '.join(ratios) or row['error']}, load {load} s", flush=True
            )
    return found


def measure(folder: Path, seconds: float) -> None:
    """Benchmark what is in a folder against its ``plain``; writes ``measured.json``."""
    from tfopt.components.benchmark.component import benchmark
    from tfopt.graph import grappler
    from tfopt.graph.saved_model import read, write

    if not (folder / "grappler").exists():
        write(grappler.run(read(folder / "plain")), folder / "grappler")
        compile_by_xla(folder / "plain", folder / "xla")
    candidates = [folder / name for name in ("grappler", "optimized", "xla")]
    with tempfile.TemporaryDirectory() as target:
        outputs = benchmark(
            folder / "plain", candidates, f"{target}/benchmark", batch_sizes=["1", "32"], seconds=seconds
        )
        rows = outputs["benchmark"].read()["models"][1:]
    (folder / "measured.json").write_text(json.dumps(rows))


def compile_by_xla(source: Path, target: Path) -> None:
    """Save serving_default anew, as a function that XLA compiles."""
    import tensorflow as tf

    module = tf.Module()
    module.loaded = tf.saved_model.load(str(source))
    served = module.loaded.signatures["serving_default"]
    specs = served.structured_input_signature[1]
    call = tf.function(lambda **named: served(**named), jit_compile=True)
    tf.saved_model.save(module, str(target), {"serving_default": call.get_concrete_function(**specs)})


if __name__ == "__main__":
    main()
