"""Training on several devices at once: what the machine must have for it, and what it makes of batch and learning rate.

Data parallelism: each replica learns from its own part of a batch, and all apply the mean of the gradients. The parts
are cut from the very batches that one device would have been given, so that the weights are those of one device with
the same batch, but for the order of sums.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models

ONE, MIRRORED, WORKERS, SERVERS, TPU = KINDS = ("one", "mirrored", "multi_worker", "parameter_server", "tpu")
SCALES: dict[str, Callable[[int], float]] = {"linear": float, "sqrt": math.sqrt, "off": lambda replicas: 1.0}
EXAMPLE = '{"cluster": {"worker": ["host-a:2222", "host-b:2222"]}, "task": {"type": "worker", "index": 0}}'


def check_distribution(kind: str) -> None:
    """Refuse what this machine cannot do, before TensorFlow is imported.

    Raises:
        ComponentError: Without a second GPU, a cluster in TF_CONFIG, or a TPU.
    """
    if kind == MIRRORED and (found := max(_gpus(), _logical_devices())) < 2:
        raise ComponentError(
            f"distribution=mirrored with {found} GPU{'' if found == 1 else 's'}",
            "two GPUs or more on this machine",
            "pass distribution=one, or multi_worker for several machines",
        )
    if kind == WORKERS:
        _check_cluster(kind, ("worker", "chief"), needed=("worker",))
    if kind == SERVERS:
        _check_cluster(kind, ("worker", "chief", "ps", "evaluator"), needed=("worker", "ps", "chief"))
    if (
        kind == TPU
        and "TPU_NAME" not in os.environ
        and not [*Path("/dev").glob("accel*"), *Path("/dev").glob("vfio/*")]
    ):
        raise ComponentError(
            "distribution=tpu without a TPU", "TPU_NAME, or a TPU in this machine", "pass distribution=one"
        )


def begin(kind: str) -> Any:
    """Return the strategy, None for one device. It must be made before TensorFlow does anything else.

    A task of a cluster that is a parameter server or serves one as its worker stays in here until it is ended.
    Parameter servers and TPUs were not run where this was written.
    """
    if kind == ONE:
        return None
    import tensorflow as tf

    if kind == MIRRORED:
        cpus = tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy(None if _gpus() else [device.name for device in cpus])
    if kind == WORKERS:
        return _workers()
    if kind == TPU:
        tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
        tf.config.experimental_connect_to_cluster(tpu)
        tf.tpu.experimental.initialize_tpu_system(tpu)
        return tf.distribute.TPUStrategy(tpu)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        place = {"job_name": cluster.task_type, "task_index": cluster.task_id}
        tf.distribute.Server(cluster.cluster_spec(), protocol=cluster.rpc_layer or "grpc", **place).join()
    return tf.distribute.ParameterServerStrategy(cluster)


def build_whole(strategy: Any, model: Any, batch: tuple[Any, Any]) -> None:
    """Make what a compiled model makes at its first step (metrics, the optimizer's variables), from a plain batch.

    Keras 3 would try with a batch that is divided already, and fail where a process has one part only.

    Raises:
        ComponentError: When a Keras 3 model is to be kept by parameter servers, which its ``fit`` knows nothing of.
    """
    if keras_models.is_keras_2(model):
        return
    if served(model):
        raise ComponentError(
            "distribution=parameter_server with a Keras 3 model",
            "a Keras 2 model, whose fit knows parameter servers",
            "import tf_keras in the module in the place of keras, or pass distribution=multi_worker",
        )
    with strategy.scope():
        model._symbolic_build(data_batch=(*batch, None))
    model._maybe_symbolic_build = lambda iterator=None, data_batch=None: None


def served(model: Any) -> bool:
    """Whether parameter servers keep a model's weights: its data then has no end, and its losses are told late."""
    return type(getattr(model, "distribute_strategy", None)).__name__.startswith("ParameterServer")


def fed(model: Any, batches: Any, validation: Any) -> dict[str, Any]:
    """What ``fit`` is told to read."""
    if not served(model):
        return {"x": batches, "validation_data": validation}
    steps = {"steps_per_epoch": int(batches.cardinality()), "validation_steps": int(validation.cardinality())}
    return {"x": batches.repeat(), "validation_data": validation.repeat(), **steps}


def scale_learning_rate(model: Any, replicas: int, rule: str) -> float | None:
    """Multiply a compiled model's learning rate by the replicas (``linear``), their square root, or 1 (``off``).

    Returns the new one.

    Raises:
        ComponentError: When it is a schedule, which only its author can scale.

    Reference:
        Goyal et al., Accurate, Large Minibatch SGD, 2017, https://arxiv.org/abs/1706.02677 (the linear rule).
    """
    factor = SCALES[rule](replicas)
    if factor == 1:
        return None
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    asked = optimizer.get_config()["learning_rate"]
    if isinstance(asked, dict):
        raise ComponentError(
            f"learning_rate_scaling={rule} for a schedule of learning rates",
            "one number, which can be multiplied",
            "scale the schedule in the module, and pass learning_rate_scaling=off",
        )
    optimizer.learning_rate = float(asked) * factor
    return float(asked) * factor


def _workers() -> Any:
    import tensorflow as tf

    class Workers(tf.distribute.MultiWorkerMirroredStrategy):  # type: ignore[misc]  # TensorFlow has no types
        """The cluster; it takes the mean of numbers too, which Keras 3 asks for along an axis that they do not have."""

        def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
            first = self.experimental_local_results(value)[0]
            return super().reduce(reduce_op, value, None if first.shape.rank == 0 else axis)

    return Workers()


def _check_cluster(kind: str, types: tuple[str, ...], needed: tuple[str, ...]) -> None:
    text = os.environ.get("TF_CONFIG", "")
    try:
        found = json.loads(text or "{}")
        cluster: Mapping[str, list[str]] = found.get("cluster", {})
        task, index = found.get("task", {}).get("type"), found.get("task", {}).get("index")
    except (ValueError, AttributeError):
        cluster, task, index = {}, None, None
    missing = [name for name in needed if not cluster.get(name)]
    known = task in types and isinstance(index, int) and 0 <= index < len(cluster.get(task, []))
    few = sum(len(cluster.get(name, [])) for name in ("worker", "chief")) < 2
    if missing or not known or few:
        raise ComponentError(
            f"distribution={kind} with TF_CONFIG={text or 'unset'}",
            f"a cluster of two or more with {' and '.join(needed)}, and this task in it",
            f"set it on each machine, with its own index, for example TF_CONFIG='{EXAMPLE}'",
        )


def _gpus() -> int:
    """The NVIDIA GPUs that this process may use."""
    there = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = [one for one in (allowed or "").split(",") if one.strip() not in ("", "-1")]
    return there if allowed is None else min(there, len(named))


def _logical_devices() -> int:
    """The devices that this process divided its CPU into, as one does to try a strategy."""
    if "tensorflow" not in sys.modules:
        return 0
    import tensorflow as tf

    parts = [tf.config.get_logical_device_configuration(cpu) for cpu in tf.config.list_physical_devices("CPU")]
    return sum(len(each or ()) for each in parts)
