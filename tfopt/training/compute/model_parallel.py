"""Model parallelism: each layer's variables, computation and gradients are on one of several devices.

Operations are placed while a training step is traced, by the scope that encloses the call of each layer. TensorFlow
names gradients by the scope of the operation that they belong to, so they are placed in the same way. Placement changes
no result: TensorFlow adds the copies between devices. `docs/adr/0088-model-parallelism.md` has the alternatives.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfopt.errors import ComponentError
from tfopt.keras_models.layer_graph import calls, is_graph
from tfopt.training.compute.device_memory import gpu_count

SCOPE = "on_device_"  # followed by the number of the device
IN_SCOPE = re.compile(rf"{SCOPE}(\d+)(?:_\d+)?(?:/|$)")


@dataclass(frozen=True)
class Placement:
    """The device of each layer."""

    devices: Sequence[str]
    numbers: Sequence[int]  # the number of the device of each layer, in the order of `placeable_layers`


def device_names(count: int) -> list[str]:
    """Return the names of the first GPUs, or of the parts of a CPU that was divided to try model parallelism."""
    return [device.name for device in tf.config.list_logical_devices("GPU" if gpu_count() else "CPU")[:count]]


def placeable_layers(model: Any) -> list[Any]:
    """Return the layers and operations of a model in topological order, those of nested models instead of these.

    A layer that is called several times is listed once, and computes all of its calls on one device. A layer that
    contains others, such as `Bidirectional`, is one layer.

    Raises:
        ComponentError: If the model is a subclass with a call of its own, or runs eagerly.
    """
    if not is_graph(model):
        received = f"model_parallel for {model.name}, and {type(model).__name__} has a call() of its own"
        expected = "a functional or sequential model, whose layers are known before it runs"
        raise ComponentError(received, expected, "build it so, or leave model_parallel out")
    if model.run_eagerly:
        received = "model_parallel for a model that is compiled with run_eagerly=True"
        raise ComponentError(
            received, "steps that are traced, so that gradients can be placed", "leave run_eagerly out"
        )
    return list({id(layer): layer for layer in _leaves(model)}.values())


def _leaves(model: Any) -> Iterator[Any]:
    for call in calls(model):
        yield from _leaves(call.layer) if is_graph(call.layer) else [call.layer]


def tensorflow_variables(variables: Iterable[Any]) -> list[Any]:
    """Return TensorFlow's variables behind those of Keras 2 or Keras 3."""
    plain = [each if isinstance(each, tf.Variable) else each.value for each in variables]
    return [getattr(each, "_variable", each) for each in plain]  # of Keras 2's AutoCastVariable, in mixed precision


@contextlib.contextmanager
def recorded_variables() -> Iterator[list[Any]]:
    """Record the variables that are created in the block, in main memory, in the order of their creation."""
    created: list[Any] = []

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        with tf.device("CPU:0"):
            created.append(next_creator(**options))
        return created[-1]

    with tf.variable_creator_scope(create):
        yield created


@contextlib.contextmanager
def placed_variables(recorded: Sequence[Any], model: Any, placement: Placement) -> Iterator[None]:
    """Create variables on the devices of their layers; the block builds the recorded model again.

    Raises:
        ComponentError: If the block creates other variables than the first time.
    """
    numbers = dict(zip(map(id, placeable_layers(model)), placement.numbers, strict=True))
    owners = {
        id(variable): numbers[id(layer)]
        for layer in placeable_layers(model)
        for variable in tensorflow_variables(getattr(layer, "variables", ()))
    }
    expected = [(owners.get(id(variable)), variable.shape, variable.dtype) for variable in recorded]
    created: list[Any] = []

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        number = expected[len(created)][0] if len(created) < len(expected) else None
        with tf.device(None if number is None else placement.devices[number]):
            created.append(next_creator(**options))
        return created[-1]

    with tf.variable_creator_scope(create):
        yield
    if [(each.shape, each.dtype) for each in created] != [(shape, dtype) for _, shape, dtype in expected]:
        received = f"build_model() created {len(created)} variables, and {len(expected)} when it was called before"
        fix = "create layers and optimizer inside build_model(), or leave model_parallel out"
        raise ComponentError(received, "the same variables in each call", fix)


@contextlib.contextmanager
def placed(model: Any, placement: Placement | None) -> Iterator[None]:
    """Compute the steps of a compiled model on the devices of its layers while the block runs; None changes nothing."""
    if placement is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        for layer, number in zip(placeable_layers(model), placement.numbers, strict=True):
            stack.enter_context(replaced(layer, "call", functools.partial(_call_in_scope, number, layer.call)))
        for name in ("train_step", "test_step"):
            step = functools.partial(_run_step, placement.devices, getattr(model, name))
            stack.enter_context(replaced(model, name, step))
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        for name in ("_all_reduce_sum_gradients", "aggregate_gradients"):  # of Keras 3 and of Keras 2
            if hasattr(optimizer, name):  # the sum over one replica is an operation with all gradients on one device
                stack.enter_context(replaced(optimizer, name, list))
        is_built = getattr(optimizer, "built", getattr(optimizer, "_built", False))
        if hasattr(optimizer, "build") and not is_built:  # else created in a traced step, and not with the weights
            model.optimizer.build(model.trainable_variables)
        model.train_function = model.test_function = None
        yield
    model.train_function = model.test_function = None


@contextlib.contextmanager
def replaced(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of one object while the block runs."""
    before = vars(owner).get(name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _call_in_scope(number: int, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with tf.name_scope(f"{SCOPE}{number}"):
        return call(*arguments, **options)


def _run_step(devices: Sequence[str], step: Callable[..., Any], data: Any) -> Any:
    with tf.compat.v1.device(_OperationPlacer(devices).place):
        return step(data)


class _OperationPlacer:
    """Choose the device of each operation that is added to the graph of a step, or of a loop or branch in it."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._captured: dict[int, Mapping[str, Any]] = {}  # by graph: the outer tensor of each captured one, by name

    def place(self, operation: Any) -> str:
        """Return the device of a new operation.

        It is that of the variable that the operation reads or assigns, or of the layer in whose scope it is, or the
        operation that it is a gradient of. Otherwise (loss, sums of gradients, updates of weights) it is that of the
        first input with a device, scalars last.
        """
        resources = [each for each in operation.inputs if each.dtype == tf.resource]
        if len(devices := {*map(self._resource_device, resources)} - {""}) == 1:
            return devices.pop()
        for text in (operation.name, *_scopes(operation.graph)):
            if numbers := IN_SCOPE.findall(text):
                return self._devices[int(numbers[-1])]
        inputs = [] if resources else sorted(operation.inputs, key=lambda each: each.shape.rank == 0)
        return next(filter(None, map(self._device, inputs)), str(operation.device))

    def _device(self, tensor: Any) -> str:
        """Return the device of a tensor; TensorFlow does not pass reads of variables to device functions."""
        if tensor.op.type == "ReadVariableOp":
            return self._resource_device(tensor.op.inputs[0])
        return str(tensor.op.device)

    def _resource_device(self, tensor: Any) -> str:
        """Return the device of a variable from its tensor in a graph, which is captured from outer graphs."""
        graph = tensor.graph
        captured = self._captured.get(id(graph), {})
        if tensor.name not in captured:
            captured = self._captured[id(graph)] = {
                inner.name: outer for outer, inner in getattr(graph, "captures", ())
            }
        outer = captured.get(tensor.name)
        if outer is None:
            return str(tensor.device)
        return self._resource_device(outer) if hasattr(outer, "graph") else str(outer.device)


def _scopes(graph: Any) -> Iterator[str]:
    """Yield the current name scope of a graph and of those that it is built in."""
    while hasattr(graph, "get_name_scope"):
        yield graph.get_name_scope()
        graph = getattr(graph, "outer_graph", None)
