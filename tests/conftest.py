"""Shared fixtures: real digits as Examples, and a small model that is trained on them."""

import contextlib
import gc
import gzip
import importlib
import logging
import os
import random
import shutil
import signal
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, settings

from tests.shared_runtimes import SharedRuntimes
from tfopt.component import find
from tfopt.components.benchmark import comparison, measured_model, model_process
from tfopt.components.benchmark.machine_conditions import OtherCores
from tfopt.processes.preloaded_processes import preloading
from tfopt.processes.startup import speed_up_imports
from tfopt.storage.folder_lock import lock_folder

speed_up_imports()
# TensorFlow's graphs consist of many objects: collecting them as often as by default takes a twentieth of the time.
gc.set_threshold(50_000, 20, 20)
# The same kernels on every x86 CPU: before AVX-512 VNNI, TensorFlow does not use oneDNN by default, and then has no
# convolutions with the channels first. The variable has to be set before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# The size without a terminal, which argparse asks for at each option of a parser, and Beam makes many parsers.
os.environ.setdefault("COLUMNS", "80")
os.environ.setdefault("LINES", "24")
# Of KFP and of many tests: libyaml reads the same in a tenth of the time.
yaml.safe_load = partial(yaml.load, Loader=yaml.CSafeLoader)
yaml.safe_load_all = partial(yaml.load_all, Loader=yaml.CSafeLoader)
# Hypothesis draws the same examples in every run; tests that search for new ones are marked nightly.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
collect_ignore = ["mutants", "stand_in_server.py"]  # programs, not test modules
# Long files, and those of the last folders, start first, so that no worker waits for another one at the end.
LONG = (
    "tests/contract/test_execution.py",
    "tests/docs/test_readme.py",
    "tests/test_",
    "tests/tfx/",
    "tests/tools/",
    "tests/kill/",
    "tests/fuzz/",
)
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # background jobs ignore SIGINT, and started programs inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of long files to the front."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_sessionfinish() -> None:
    """Leave all objects out of the garbage collections with which pytest ends, and which take seconds."""
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Seed the global generators, so that models have the same random weights in any order of the tests.

    Empty the store in memory, too, because each listing of a folder reads the names of all files in it.
    """
    random.seed(0)
    np.random.seed(0)
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(0)
        # It sets TF_USE_LEGACY_KERAS when TFX imports it, and that test would start another call server.
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorflow_transform.keras_lib")
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # child processes would use Keras 2
    if memory := sys.modules.get("fsspec.implementations.memory"):
        memory.MemoryFileSystem.store.clear()
        memory.MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine() -> Iterator[None]:
    """Let `benchmark` ignore load that tests next to this one cause; most of its tests are about other verdicts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OtherCores, "used_share", lambda cores, since: 0.0)
        patch.setattr(measured_model, "MOST_WAITED", 1.0)
        patch.setattr(comparison, "LEAST_WAIT", 1.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_waits_for_the_disk() -> Iterator[None]:
    """Leave out the milliseconds in which a disk writes each file: no test cuts the power; one counts the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _levels_of_logs() -> None:
    """Reset log levels, because libraries change them for the whole process."""
    for name, level in ((None, logging.WARNING), ("tfopt", logging.NOTSET)):
        if (logger := logging.getLogger(name)).level != level:  # setting it clears the caches of thousands of loggers
            logger.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _frozen_heap() -> None:
    """Leave what earlier modules imported and traced out of later garbage collections, which it would slow down."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _preloading() -> Iterator[None]:
    """Import TensorFlow once for the child processes of all tests, as a run does; a few tests start new processes."""
    with preloading():
        yield


@pytest.fixture(autouse=True, scope="session")
def shared_runtimes(tmp_path_factory) -> Iterator[SharedRuntimes]:
    """Import each runtime once for the benchmarks of all tests; those of its processes start their own."""
    with SharedRuntimes(tmp_path_factory.mktemp("runtimes")) as shared, pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_process, "RuntimeProcesses", shared)
        yield shared


@pytest.fixture
def short_serving_check(monkeypatch) -> None:
    """Let the steps of validate_serving, of four clients each, measure for a moment instead of a second."""
    parameters = find("validate_serving").parameters
    monkeypatch.setitem(parameters, "seconds", replace(parameters["seconds"], default=0.05))


@pytest.fixture(scope="session")
def _s3_endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(_s3_endpoint, monkeypatch) -> str:
    """Return the address of a new bucket of a local S3 server; child processes reach it too."""
    import boto3

    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**credentials, "AWS_ENDPOINT_URL": _s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that returns a folder of all workers of this run, which the first of them builds."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def build_once(name: str, build: Callable[[Path], object]) -> Path:
        place = base / "shared" / name
        place.mkdir(parents=True, exist_ok=True)
        with lock_folder(place):
            if not (place / "complete").exists():
                shutil.rmtree(place / name, ignore_errors=True)
                build(place / name)
                (place / "complete").touch()
        return place / name

    return build_once


@pytest.fixture(scope="session")
def digits_examples(shared_folder) -> Path:
    """Examples of 8x8 digits: float ``image`` (0 to 16), int64 ``label``; 1,400 train in two shards, 397 eval."""
    return shared_folder("examples", _write_digits)


def _write_digits(folder: Path) -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    for split, rows in (("train", np.array_split(order[:1400], 2)), ("eval", [order[1400:]])):
        for shard, indices in enumerate(rows):
            file = folder / f"Split-{split}" / f"data_tfrecord-{shard:05d}-of-{len(rows):05d}.gz"
            write_examples(file, {"image": images[indices], "label": labels[indices]})


@pytest.fixture(scope="session")
def digits_model(shared_folder, digits_examples) -> Path:
    """A KerasModel folder: Keras 3, ``image`` [8,8,1], conv, batch norm with trained statistics, softmax, > 95 %."""
    return shared_folder("model", lambda folder: _train_digits(digits_examples, folder))


def _train_digits(examples: Path, folder: Path) -> None:
    import keras

    from tfopt import keras_models
    from tfopt.artifacts import Examples
    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.data.batches import read_batches

    specs = {"image": TensorSpec("float32", (None, 8, 8, 1)), "label": TensorSpec("int64", (None, 1))}
    train = next(read_batches(Examples(examples).split("train"), specs, batch_size=1400))
    keras.utils.set_random_seed(0)
    model = small_digits_model()
    model.compile(keras.optimizers.Adam(0.006), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(train["image"], train["label"], epochs=8, batch_size=64, verbose=0)
    keras_models.save(model, folder)


@pytest.fixture(scope="session")
def digits_lite(shared_folder, digits_model) -> Path:
    """A TFLiteModel folder, float32, of `digits_model`."""
    from tfopt.components.export_tflite.component import export_tflite

    return shared_folder("lite", lambda folder: export_tflite(model=digits_model, exported=folder, precision="float32"))


def small_digits_model():
    """Build an untrained model: rescale, conv + batch norm + relu twice (one depthwise), dense softmax."""
    import keras
    from keras import layers

    image = layers.Input((8, 8, 1), name="image")
    flow = layers.Rescaling(1 / 16)(image)
    flow = layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv2d")(flow)
    flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
    flow = layers.DepthwiseConv2D(3, padding="same", name="depthwise_conv2d")(flow)
    flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
    flow = layers.Flatten()(layers.MaxPooling2D()(flow))
    return keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="digits")


def write_examples(file: Path, columns: dict[str, np.ndarray]) -> None:
    """Write one TFRecord file (gzip by its name): floats, integers and text or bytes, a row per record."""
    import tensorflow as tf

    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file), "GZIP" if file.suffix == ".gz" else "") as writer:
        for row in zip(*columns.values(), strict=True):
            features = {name: _feature(np.ravel(value)) for name, value in zip(columns, row, strict=True)}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def cut_between_records(file: Path) -> int:
    """Truncate a gzipped TFRecord file at a record boundary and return the number of remaining records."""
    import tensorflow as tf

    unpacked, records, start = gzip.decompress(file.read_bytes()), 0, 0
    while start < len(unpacked) // 2:
        start += int.from_bytes(unpacked[start : start + 8], "little") + 16
        records += 1
    packer = zlib.compressobj(wbits=31)
    file.write_bytes(packer.compress(unpacked[:start]) + packer.flush(zlib.Z_SYNC_FLUSH))
    assert len(list(tf.data.TFRecordDataset(str(file), "GZIP"))) == records
    return records


def _feature(values: np.ndarray):
    import tensorflow as tf

    if values.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if values.dtype.kind in "iub":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values.astype(np.int64)))
    texts = [value.encode() if isinstance(value, str) else value for value in values.tolist()]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
