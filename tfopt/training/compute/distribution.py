"""Training on several devices: requirements on the machine, distribution strategies, scaling of the learning rate.

Data parallelism: each replica trains on its own part of a batch, and all apply the mean of the gradients. The parts are
cut from the same batches that one device would get, so the weights equal those of one device with the same batch size,
except for the order of summation.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfopt import keras_models
from tfopt.errors import ComponentError
from tfopt.training.compute.device_memory import gpu_count

ONE, MIRRORED, WORKERS, SERVERS, TPU = "one", "mirrored", "multi_worker", "parameter_server", "tpu"
SCALES: dict[str, Callable[[int], float]] = {"linear": float, "sqrt": math.sqrt, "off": lambda replicas: 1.0}
EXAMPLE = '{"cluster": {"worker": ["host-a:2222", "host-b:2222"]}, "task": {"type": "worker", "index": 0}}'


def check_distribution(kind: str) -> None:
    """Raise ComponentError without a second GPU, a cluster in TF_CONFIG, or a TPU; TensorFlow is not imported."""
    if kind == MIRRORED and (devices := _count_devices()) < 2:
        received = f"distribution=mirrored with {devices} GPU{'' if devices == 1 else 's'}"
        expected = "two GPUs or more on this machine"
        raise ComponentError(received, expected, "pass distribution=one, or multi_worker for several machines")
    if kind == WORKERS:
        _check_cluster(kind, ("worker", "chief"), required=("worker",))
    if kind == SERVERS:
        _check_cluster(kind, ("worker", "chief", "ps", "evaluator"), required=("worker", "ps", "chief"))
    has_tpu = "TPU_NAME" in os.environ or [*Path("/dev").glob("accel*"), *Path("/dev").glob("vfio/*")]
    if kind == TPU and not has_tpu:
        received = "distribution=tpu without a TPU"
        raise ComponentError(received, "TPU_NAME, or a TPU in this machine", "pass distribution=one")


def check_model_parallel(count: int) -> None:
    """Raise ComponentError if this machine has fewer devices for the parts of a model; TensorFlow is not imported."""
    if count > 1 and (devices := _count_devices()) < count:
        received = f"model_parallel={count} with {devices} GPU{'' if devices == 1 else 's'}"
        fix = "leave model_parallel out, or pass the number of GPUs; for less memory pass rematerialize or a batch_size"
        raise ComponentError(received, "a GPU of this machine for each part of the model", fix)


def create_strategy(kind: str) -> Any:
    """Create the distribution strategy; None for one device. Call it before any other use of TensorFlow.

    In a cluster task that is a parameter server or one of its workers, this call does not return until the process
    ends. Parameter servers and TPUs have never been run by the authors.
    """
    if kind == ONE:
        return None
    import tensorflow as tf

    if kind == MIRRORED:
        cpus = tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy(None if gpu_count() else [device.name for device in cpus])
    if kind == WORKERS:
        return _multi_worker_strategy()
    if kind == TPU:
        tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
        tf.config.experimental_connect_to_cluster(tpu)
        tf.tpu.experimental.initialize_tpu_system(tpu)
        return tf.distribute.TPUStrategy(tpu)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        task = {"job_name": cluster.task_type, "task_index": cluster.task_id}
        tf.distribute.Server(cluster.cluster_spec(), protocol=cluster.rpc_layer or "grpc", **task).join()
    return tf.distribute.ParameterServerStrategy(cluster)


def build_with_whole_batch(strategy: Any, model: Any, batch: tuple[Any, Any]) -> None:
    """Create the metrics and optimizer variables of a compiled model from an undivided batch.

    Keras 3 would use a batch that is already divided, and fail in a process that has only one part of it. Raise
    ComponentError if it is a Keras 3 model with parameter servers, which its `fit` does not support.
    """
    if keras_models.is_keras_2(model):
        return
    if uses_parameter_servers(model):
        received = "distribution=parameter_server with a Keras 3 model"
        fix = "import tf_keras instead of keras in the module, or pass distribution=multi_worker"
        raise ComponentError(received, "a Keras 2 model, whose fit supports parameter servers", fix)
    with strategy.scope():
        model._symbolic_build(data_batch=(*batch, None))
    model._maybe_symbolic_build = lambda iterator=None, data_batch=None: None


def uses_parameter_servers(model: Any) -> bool:
    """Return True if parameter servers store the weights: the data must then be endless, and losses arrive late."""
    return type(getattr(model, "distribute_strategy", None)).__name__.startswith("ParameterServer")


def fit_data(model: Any, batches: Any, validation: Any) -> dict[str, object]:
    """Return the data arguments of `fit`."""
    if not uses_parameter_servers(model):
        return {"x": batches, "validation_data": validation}
    steps = {"steps_per_epoch": int(batches.cardinality()), "validation_steps": int(validation.cardinality())}
    return {"x": batches.repeat(), "validation_data": validation.repeat(), **steps}


def scale_learning_rate(model: Any, replicas: int, rule: str) -> float | None:
    """Multiply a compiled model's learning rate by the replicas (``linear``), their square root, or 1 (``off``).

    Returns the new learning rate; None if it does not change.

    Raises:
        ComponentError: If the learning rate is a schedule, which cannot be scaled from outside.

    Reference:
        Goyal et al., Accurate, Large Minibatch SGD, 2017, https://arxiv.org/abs/1706.02677 (the linear rule).
    """
    factor = SCALES[rule](replicas)
    if factor == 1:
        return None
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    learning_rate = optimizer.get_config()["learning_rate"]
    if isinstance(learning_rate, dict):
        received = f"learning_rate_scaling={rule} for a schedule of learning rates"
        expected = "one number, which can be multiplied"
        raise ComponentError(received, expected, "scale the schedule in the module, and pass learning_rate_scaling=off")
    optimizer.learning_rate = float(learning_rate) * factor
    return float(learning_rate) * factor


def _multi_worker_strategy() -> Any:
    import tensorflow as tf

    class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):  # type: ignore[misc]  # TensorFlow is untyped
        """A strategy that also reduces scalars: Keras 3 passes them with an axis that they do not have."""

        def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
            first = self.experimental_local_results(value)[0]
            return super().reduce(reduce_op, value, None if first.shape.rank == 0 else axis)

    return MultiWorkerStrategy()


def _check_cluster(kind: str, types: tuple[str, ...], required: tuple[str, ...]) -> None:
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text or "{}")
        cluster: Mapping[str, list[str]] = config.get("cluster", {})
        task, index = config.get("task", {}).get("type"), config.get("task", {}).get("index")
    except (ValueError, AttributeError, RecursionError):
        cluster, task, index = {}, None, None
    missing = [name for name in required if not cluster.get(name)]
    has_task = task in types and isinstance(index, int) and 0 <= index < len(cluster.get(task, []))
    too_few = sum(len(cluster.get(name, [])) for name in ("worker", "chief")) < 2
    if missing or not has_task or too_few:
        expected = f"a cluster of two or more with {' and '.join(required)}, and this task in it"
        fix = f"set it on each machine, with its own index, for example TF_CONFIG='{EXAMPLE}'"
        raise ComponentError(f"distribution={kind} with TF_CONFIG={text or 'unset'}", expected, fix)


def _count_devices() -> int:
    """Count the GPUs, or the logical devices that this process has divided its CPU into to try out several devices."""
    if "tensorflow" not in sys.modules:
        return gpu_count()
    import tensorflow as tf

    configurations = [tf.config.get_logical_device_configuration(cpu) for cpu in tf.config.list_physical_devices("CPU")]
    return max(gpu_count(), sum(len(each or ()) for each in configurations))
