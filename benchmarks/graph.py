"""Measure the graph laws: time by number of nodes, remaining nodes of six backbones and two transformers, and speedup.

    python benchmarks/graph.py                                # nodes 1,000 to 100,000, then all models of both Kerases
    python benchmarks/graph.py --models MobileNetV2 --keras keras
    python benchmarks/graph.py --models MobileNetV2 --keras keras --side 96    # smaller images: the same graph, faster
    python benchmarks/graph.py --keras keras --latency [--seconds 12]          # a quiet machine; minutes for each model
    python benchmarks/graph.py --keras keras --latency --contenders grappler optimized    # no XLA: faster
    python benchmarks/graph.py --keras keras --latency --models transformer "transformer, tanh"

The transformers are encoders of four blocks of width 256 for texts with padding, with the exact GELU and the one with
tanh. The models have random weights, and batch norms with statistics of random images, randomly perturbed. They return
logits, since softmax would hide errors. ``error`` is the largest difference from the baseline, as a fraction of the
range of the output. ``--latency`` compares the plain SavedModel with the results of Grappler alone, `optimize_graph`
and XLA, with oneDNN off and on (speed.py). Goals: under 10 s at 50,000 nodes; no foldable batch norm left; error at
most 1e-4; the speed goals of speed.py.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from speed import BATCHES, CONTENDERS, Timing, compare
from transformer import export_transformer

from tfopt.measurement.speedup import FEWEST_ROUNDS

SIZES = (1_000, 3_000, 10_000, 30_000, 50_000, 100_000)
SCALES = {"EfficientNetB0": 255}  # inputs are pixels from 0 to 255, not 0 to 1: smaller inputs would vanish in rounding
BACKBONES = ("MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "Xception", "InceptionV3")
MODELS = (*BACKBONES, "transformer", "transformer, tanh")
WIDTH = 256  # of the transformers


def main() -> None:
    """Measure, print tables, and write JSON if ``--json`` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="*", default=None, choices=MODELS, help="only these, without the table of times"
    )
    parser.add_argument("--keras", nargs="*", default=["keras", "tf_keras"], choices=["keras", "tf_keras"])
    parser.add_argument("--latency", action="store_true", help="measure latency too")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS, help="only these")
    parser.add_argument(
        "--batches", nargs="+", default=list(BATCHES), choices=BATCHES, help="only these sizes of batch"
    )
    parser.add_argument("--side", type=int, help="height and width of the images, instead of those of each model")
    parser.add_argument("--seconds", type=float, default=12.0, help="time of measurement for each contender")
    parser.add_argument("--rounds", type=int, default=8, help="number of loads of each contender")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))), help="of each contender")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    if arguments.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds {arguments.rounds}: an interval needs at least {FEWEST_ROUNDS}")
    timing = Timing(arguments.contenders, arguments.batches, arguments.seconds, arguments.rounds, arguments.threads)
    results: dict[str, Any] = {} if arguments.models else {"seconds by nodes": times()}
    for name in arguments.models or MODELS:
        for library in arguments.keras:
            with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
                row = one_model(name, library, Path(folder), arguments.side)
                if arguments.latency:
                    row["speed"] = compare(name, Path(folder), timing)
            results[f"{name}, {library}"] = row
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


def times() -> dict[int, float]:
    """Return the seconds of all laws on graphs of dense layers with batch norms, by number of nodes.

    On a busy machine, processor time is more meaningful than elapsed time.
    """
    from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
    from tfopt.graph.law_order import ORDER
    from tfopt.graph.law_runner import optimize
    from tfopt.graph.report import Report

    x, y = (Endpoint(f"{name}:0", "float32", (None, 8)) for name in "xy")
    print(f"{'nodes':>8} {'after':>8} {'seconds':>8} {'processor':>9} {'microseconds a node':>20}")
    seconds_by_nodes = {}
    for size in SIZES:
        graph_def = layers(size)
        start, busy = time.perf_counter(), time.process_time()
        made = optimize(Frozen(graph_def, {"serve": Signature({"x": x}, {"y": y})}), ORDER, Report())
        after = len(made.graph.node)
        seconds_by_nodes[len(graph_def.node)] = seconds = time.perf_counter() - start
        busy = time.process_time() - busy
        print(
            f"{len(graph_def.node):8} {after:8} {seconds:8.2f} {busy:9.2f} {1e6 * seconds / len(graph_def.node):20.0f}"
        )
    return seconds_by_nodes


def layers(size: int) -> Any:
    """Return a graph of about ``size`` nodes: copies of MatMul, batch norm as exported by Keras 3, Relu, Identity."""
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


def one_model(name: str, library: str, folder: Path, side: int | None = None) -> dict[str, Any]:
    """Export a model, optimize it, and print and return a row; the models stay in the folder."""
    import logging

    from tfopt.artifacts import SavedModel
    from tfopt.components.optimize_graph.component import optimize_graph

    if name in BACKBONES:
        export(name, library, folder / "plain", side)
    else:
        options = {"masked": True, "approximate": "tanh" in name, "random_biases": True}
        with contextlib.redirect_stdout(io.StringIO()):
            export_transformer(folder / "plain", WIDTH, library=library, **options)
    start = time.perf_counter()
    optimized = optimize_graph(folder / "plain", folder / "optimized", passes=["portable"])["optimized"]
    seconds = time.perf_counter() - start
    card = SavedModel(optimized.path).card.facts
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
        print(f"    {law} undone: {reason}")
    logging.getLogger("tfopt").debug("%s", report["fired"])
    return row


def export(name: str, library: str, folder: Path, side: int | None = None) -> None:
    """Export a backbone with random weights and batch norms with perturbed statistics of random images.

    Only a random part of the mean is subtracted: random kernels give nearly equal outputs for all random images, so
    that without the mean mostly rounding would remain, which every further layer amplifies in baseline and child.
    """
    import numpy as np

    keras = importlib.import_module(library)
    keras.utils.set_random_seed(0)
    draw, shape = np.random.default_rng(0), (side, side, 3) if side else None
    model = getattr(keras.applications, name)(weights=None, classifier_activation=None, input_shape=shape)
    norms = [layer for layer in model.layers if "BatchNormalization" in type(layer).__name__]
    for norm in norms:
        norm.momentum = 0.0  # one batch determines the statistics
        for weight, low, high in ((norm.gamma, 0.5, 1.5), (norm.beta, -1, 1)):
            if weight is not None:
                weight.assign(draw.uniform(low, high, weight.shape))
    scale = SCALES.get(name, 1)
    model(scale * draw.random((4, *model.input_shape[1:]), np.float32), training=True)
    for norm in norms:
        mean, variance = np.asarray(norm.moving_mean), np.asarray(norm.moving_variance)
        norm.moving_mean.assign(mean * draw.random(mean.shape))
        norm.moving_variance.assign((variance + mean**2) * np.exp(draw.uniform(-0.5, 0.5, variance.shape)))
    if scale != 1:
        image = keras.Input(model.input_shape[1:])
        model = keras.Model(image, model(keras.layers.Rescaling(scale)(image)))
    with contextlib.redirect_stdout(io.StringIO()):  # Keras lists every variable
        model.export(str(folder))


if __name__ == "__main__":
    main()
