"""Compare equal forms of the parts of a transformer of width 256: which one TensorFlow with oneDNN computes fastest.

    TF_ENABLE_ONEDNN_OPTS=1 python benchmarks/transformer_forms.py --rounds 200

All forms of a part run alternately in one process on 2 threads. The ratio is that of the lower quartiles of the times,
since other processes only make calls longer.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from loops import time_call

LENGTH, WIDTH, HEADS = 64, 256, 4
Form = Callable[[Any, Any], Any]  # of the module of TensorFlow and a tensor [records * LENGTH, WIDTH]


def main() -> None:
    """Measure, and print a line for each form and number of records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--records", type=int, nargs="+", default=[1, 32])
    arguments = parser.parse_args()
    import tensorflow as tf

    for part, forms in PARTS.items():
        for records in arguments.records:
            times = _measure(tf, list(forms.values()), records, arguments.rounds)
            for name, seconds in zip(forms, times, strict=True):
                call = f"{1e3 * seconds:7.3f} ms  {times[0] / seconds:5.2f}x"
                print(f"{part:<12} {records:>3} records  {name:<42} {call}")


def _measure(tf: Any, forms: list[Form], records: int, rounds: int) -> list[float]:
    draw = np.random.default_rng(0)
    feeds = {"x:0": draw.normal(size=(records * LENGTH, WIDTH)).astype("float32")}
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2)
    sessions = []
    for form in forms:
        with tf.Graph().as_default() as graph:
            tf.identity(form(tf, tf.compat.v1.placeholder(tf.float32, [None, WIDTH], name="x")), name="y")
        sessions.append(tf.compat.v1.Session(graph=graph, config=config))
    outputs = [session.run("y:0", feeds) for session in sessions]
    for output in outputs[1:]:
        np.testing.assert_allclose(output, outputs[0], atol=1e-4 * np.abs(outputs[0]).max())
    times = np.asarray([[time_call(session, feeds) for session in sessions] for _ in range(rounds)])
    return [float(quartile) for quartile in np.percentile(times, 25, axis=0)]


def _weights(tf: Any, *shape: int) -> Any:
    return tf.constant(np.random.default_rng(sum(shape)).normal(0, 0.1, shape), tf.float32)


def _moments(tf: Any, x: Any) -> tuple[Any, Any]:
    mean = tf.reduce_mean(x, [1], keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), [1], keepdims=True)
    return mean, tf.math.rsqrt(variance + 1e-3) * _weights(tf, WIDTH)


def _keras_norm(tf: Any, x: Any) -> Any:
    mean, scale = _moments(tf, x)
    return x * scale + (-mean * scale + _weights(tf, WIDTH))


def _kernel_norm(tf: Any, x: Any) -> Any:
    mean, scale = _moments(tf, x)
    return x * scale + (_weights(tf, WIDTH) - mean * scale)


def _centered_norm(tf: Any, x: Any) -> Any:
    centered = x - tf.reduce_mean(x, [1], keepdims=True)
    deviation = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), [1], keepdims=True) + 1e-3)
    return centered * deviation * _weights(tf, WIDTH) + _weights(tf, WIDTH)


def _dense(tf: Any, x: Any, width: int) -> Any:
    return tf.nn.bias_add(tf.matmul(x, _weights(tf, WIDTH, width)), _weights(tf, width))


def _heads(tf: Any, x: Any) -> Any:
    return tf.reshape(x, [-1, LENGTH, HEADS, WIDTH // HEADS])


def _einsum_attention(tf: Any, x: Any) -> Any:
    heads = _heads(tf, x)
    scores = tf.nn.softmax(tf.einsum("BTNH,BSNH->BNTS", heads, heads))
    return tf.reshape(tf.einsum("BNTS,BSNH->BTNH", scores, heads), [-1, WIDTH])


def _batched_attention(tf: Any, x: Any) -> Any:
    heads = tf.transpose(_heads(tf, x), [0, 2, 1, 3])
    made = tf.matmul(tf.nn.softmax(tf.matmul(heads, heads, transpose_b=True)), heads)
    return tf.reshape(tf.transpose(made, [0, 2, 1, 3]), [-1, WIDTH])


def _erfc_gelu(tf: Any, x: Any) -> Any:
    y = _dense(tf, x, 4 * WIDTH)
    return 0.5 * y * tf.math.erfc(-y * np.float32(2**-0.5))


def _erf_gelu(tf: Any, x: Any) -> Any:
    y = _dense(tf, x, 4 * WIDTH)
    return (0.5 * y) * (tf.math.erf(y * np.float32(2**-0.5)) + 1.0)


def _projections(tf: Any, x: Any, *, merged: bool) -> Any:
    kernels = [np.random.default_rng(seed).normal(0, 0.1, (WIDTH, WIDTH)).astype("float32") for seed in range(3)]
    bias = _weights(tf, WIDTH)
    if merged:
        made = tf.nn.bias_add(tf.matmul(x, np.concatenate(kernels, 1)), tf.tile(bias, [3]))
        parts = tf.split(made, 3, axis=1)
    else:
        parts = [tf.nn.bias_add(tf.matmul(x, kernel), bias) for kernel in kernels]
    return tf.concat([_heads(tf, part) for part in parts], 0)


PARTS: dict[str, dict[str, Form]] = {
    "layer norm": {
        "x s + (-m s + b), as exported by Keras 3": _keras_norm,
        "x s + (b - m s), oneDNN's kernel": _kernel_norm,
        "(x - m) r g + b, fuse_layer_norms": _centered_norm,
    },
    "attention": {
        "Einsum, as exported": _einsum_attention,
        "Transpose and BatchMatMulV2": _batched_attention,
    },
    "dense, GELU": {"Erfc, as exported": _erfc_gelu, "Erf, oneDNN's kernel, fuse_gelus": _erf_gelu},
    "projections": {
        "three products": lambda tf, x: _projections(tf, x, merged=False),
        "one product, fuse_products_of_one_input": lambda tf, x: _projections(tf, x, merged=True),
    },
}


if __name__ == "__main__":
    main()
