"""Trainings with one planted fault each, with their modules and examples, for `benchmarks/bottlenecks.py`."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf

COUNT = 2048

MODULE = """
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

class Own(layers.Layer):
    def call(self, x):
{call}
    def compute_output_shape(self, shape):
        return shape

def loss(truth, guess):
    {loss}

{preprocess}
def build_model():
    x = layers.Input({shape}, name="x", dtype="{dtype}")
    flow = {flow}
    model = keras.Model(x, layers.Dense(10)(flow))
    model.compile(keras.optimizers.SGD(1e-4), loss=loss, run_eagerly={eager})
    return model
"""
PREPROCESS = """
def preprocess(features):
    return {"x": Own()(features["x"])}
"""
USUAL = "return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(tf.reshape(truth, [-1]), tf.int32), guess)"
IN_NUMPY = """def numbers(t, g):
        for _ in range(30):
            np.sort(np.random.rand(20_000))
        return g.mean(1).astype(np.float32)
    return tf.reduce_mean(guess, 1) + tf.reshape(tf.numpy_function(numbers, [truth, guess], tf.float32), [-1])"""
SLEEPS = """        def slow(values):
            import time
            time.sleep({seconds})
            return values
        return tf.ensure_shape(tf.py_function(slow, [x], tf.float32), x.shape)"""
HEAVY = """        y = x[:, :, None] * x[:, None, :]
        for _ in range(20):
            y = tf.tanh(tf.matmul(y, y) / 64.0)
        return tf.reduce_mean(y, 1)"""
MAPPED = """        def attended(row):
            return tf.linalg.matvec(tf.nn.softmax(row[:, None] * row[None, :]), row)
        return tf.map_fn(attended, x)"""
MAPPED_LONG = """        def outer(row):
            both = row[:, None] * row[None, :]
            for _ in range(8):
                both = tf.nn.softmax(tf.matmul(both, both))
            return tf.reduce_sum(both, 1)
        return tf.map_fn(outer, x)"""
WRITTEN = """        return rows(x)

@tf.function
def rows(x):
    found = tf.TensorArray(tf.float32, tf.shape(x)[0])
    for at in tf.range(tf.shape(x)[0]):
        row = x[at]
        found = found.write(at, tf.linalg.matvec(tf.nn.softmax(row[:, None] * row[None, :]), row))
    return tf.ensure_shape(found.stack(), [None, 64])

class Unused:"""
UNROLLED = """        columns = []
        for at in range(1024):
            columns.append(tf.tanh(x[:, at] * 0.5))
        return tf.stack(columns, 1)"""

DENSE, SMALL = "layers.Dense(64, 'relu')(x)", "layers.Dense(16, 'relu')(x)"
WIDE = "layers.Dense(1024, 'relu')(layers.Dense(1024, 'relu')(layers.Dense(1024, 'relu')(x)))"
OWN = "layers.Dense(16)(Own()(x))"
CONVOLUTIONS = (
    "layers.Flatten()(layers.Conv2D(64, 3)(layers.Conv2D(64, 3, activation='relu')(layers.Reshape((16, 16, 1))(x))))"
)
RECURRENT = "layers.LSTM(128)(layers.Reshape((64, 1))(x))"
FIRST = "layers.Dense({width})(x)"

THROTTLED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void wait_for(int fd, ssize_t got) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0 || got <= 0) return;
  path[length] = 0;
  if (strstr(path, "slow disk")) usleep((useconds_t)(got / SPEED));
}
ssize_t pread(int fd, void *to, size_t count, off_t at) {
  static ssize_t (*real)(int, void *, size_t, off_t);
  if (!real) real = dlsym(RTLD_NEXT, "pread");
  ssize_t got = real(fd, to, count, at); wait_for(fd, got); return got;
}
ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
  static ssize_t (*real)(int, void *, size_t, off64_t);
  if (!real) real = dlsym(RTLD_NEXT, "pread64");
  ssize_t got = real(fd, to, count, at); wait_for(fd, got); return got;
}
"""


@dataclass(frozen=True)
class Planted:
    """A training with a fault.

    Attributes:
        name: The fault.
        expected: The name of the bottleneck.
        flow: The model, an expression of ``x``.
        call: The body of its own layer.
        prepared: True if that layer is in ``preprocess`` and not in the model.
        loss: The body of its loss.
        shape: The shape of an example.
        dtype: The dtype of an example.
        eager: True if it is compiled to run eagerly.
        parameters: Parameters of `profile_training`.
        megabytes_s: Simulated speed of the disk; 0 for no simulation.
        count: Number of examples.
    """

    name: str
    expected: str
    flow: str = DENSE
    call: str = "        return x"
    prepared: bool = False
    loss: str = USUAL
    shape: tuple[int, ...] = (64,)
    dtype: str = "float32"
    eager: bool = False
    parameters: Mapping[str, object] = field(default_factory=dict)
    megabytes_s: int = 0
    count: int = COUNT

    def write(self, folder: Path) -> tuple[Path, Path, dict[str, str]]:
        """Write examples and module; return their paths, and the environment variables of the process."""
        module, data = folder / "module.py", folder / ("slow disk" if self.megabytes_s else "data")
        texts = {"call": self.call, "loss": self.loss, "preprocess": PREPROCESS if self.prepared else ""}
        kind = {"shape": self.shape, "dtype": self.dtype, "eager": self.eager, "flow": self.flow}
        module.write_text(MODULE.format(**texts, **kind))
        _write_examples(data / "Split-train" / "data_tfrecord-00000", self.shape[0], self.dtype, self.count)
        return data, module, _build_slow_disk(folder, self.megabytes_s) if self.megabytes_s else {}


OFF = {"cache": "off"}
ONE_BY_ONE = {"cache": "memory", "prefetch": 0}

ALL = [
    Planted(
        "sleeping Python in preprocess",
        "slow preprocessing",
        call=SLEEPS.format(seconds=0.05),
        prepared=True,
        parameters=OFF,
    ),
    Planted(
        "much arithmetic in preprocess", "slow preprocessing", call=HEAVY, prepared=True, flow=SMALL, parameters=OFF
    ),
    Planted("map_fn in preprocess", "slow preprocessing", call=MAPPED_LONG, prepared=True, flow=SMALL, parameters=OFF),
    Planted("disk of 2 MB/s", "slow reading", parameters=OFF, megabytes_s=2),
    Planted("disk of 5 MB/s, large examples", "slow reading", shape=(2048,), parameters=OFF, megabytes_s=5),
    Planted(
        "pixels as long integers",
        "slow parsing",
        flow="layers.Dense(2)(layers.Rescaling(1 / 255)(x))",
        shape=(16_384,),
        dtype="int64",
        parameters=OFF,
    ),
    Planted(
        "no prefetch, wide examples",
        "no overlap",
        flow=FIRST.format(width=8),
        shape=(40_000,),
        parameters=ONE_BY_ONE | {"batch_size": 256},
        count=768,
    ),
    Planted(
        "no prefetch, batches of 4096",
        "no overlap",
        flow=FIRST.format(width=512),
        parameters=ONE_BY_ONE | {"batch_size": 4096},
        count=16_384,
    ),
    Planted("epochs of one step", "short epochs", count=64),
    Planted("batches of 2, wide layers", "small batch", flow=WIDE, parameters={"batch_size": 2}),
    Planted("batches of 1, convolutions", "small batch", flow=CONVOLUTIONS, shape=(256,), parameters={"batch_size": 1}),
    Planted("one layer of 10", "tiny model", flow="x"),
    Planted("16 and 10", "tiny model", flow=SMALL, parameters={"batch_size": 32}),
    Planted("run_eagerly", "python", eager=True),
    Planted("py_function in a layer", "python", flow=OWN, call=SLEEPS.format(seconds=0.01)),
    Planted("numpy in the loss", "python", loss=IN_NUMPY),
    Planted("map_fn in a layer", "loop", flow=OWN, call=MAPPED),
    Planted("for over rows, in a tf.function", "loop", flow=OWN, call=WRITTEN),
    Planted("for over columns, in Python", "loop", flow=OWN, call=UNROLLED, shape=(1024,)),
    Planted("wide layers", "model", flow=WIDE, parameters={"batch_size": 256}),
    Planted("LSTM, whose rounds need each other", "model", flow=RECURRENT),
]


def _write_examples(file: Path, length: int, dtype: str, count: int) -> None:
    """Write random numbers: their values do not influence the time of a step."""
    file.parent.mkdir(parents=True)
    random = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for label in random.integers(0, 10, count):
            if dtype == "int64":
                values = tf.train.Feature(int64_list=tf.train.Int64List(value=random.integers(0, 256, length)))
            else:
                values = tf.train.Feature(float_list=tf.train.FloatList(value=random.random(length)))
            features = {"x": values, "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _build_slow_disk(folder: Path, megabytes_s: int) -> dict[str, str]:
    """Build a library that slows down reading of files below ``slow disk``; return the variables that preload it."""
    source, library = folder / "throttled.c", folder / "throttled.so"
    source.write_text(THROTTLED)
    command = ["cc", "-shared", "-fPIC", f"-DSPEED={megabytes_s}.0", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return {"LD_PRELOAD": str(library)}
