"""Build the user's model with its layers on several devices, by a cut that is computed from their measured costs."""

import logging
from collections.abc import Callable
from typing import Any

import psutil

from tfopt import keras_models
from tfopt.errors import ComponentError
from tfopt.formatting import data_size
from tfopt.tensorrt.machine import list_gpus
from tfopt.training.compute.layer_costs import measure_layers, weight_bytes
from tfopt.training.compute.layer_cut import LayerCost, Part, check_gain, cut_layers, describe_parts
from tfopt.training.compute.model_parallel import (
    Placement,
    device_names,
    placeable_layers,
    placed_variables,
    recorded_variables,
)
from tfopt.training.compute.precision import set_jit_compile
from tfopt.training.training_setup import TrainingSetup

log = logging.getLogger(__name__)


class LayerPlacement:
    """A training whose layers are on several devices.

    Attributes:
        setup: The model, with the variables of each layer on its device.
        placement: The device of each layer.
        parts: What each device has of the model.
        counts: The number of records of each split, which were checked.
    """

    def __init__(self, build: Callable[[], TrainingSetup], devices: int, batch_size: int, gpu_memory_mb: int) -> None:
        """Measure the layers of the model that the function builds, cut it, and build it again.

        Raises:
            ComponentError: If its layers cannot be placed, or a cut gains nothing.
        """
        names = device_names(devices)
        with recorded_variables() as variables:
            first = build()
        layers = placeable_layers(first.parts.model)
        check_model(first.parts.model, layers, devices)

        def build_on(placement: Placement) -> TrainingSetup:
            keras_models.library(first.parts.model).backend.clear_session()  # otherwise layers would get other names
            with placed_variables(variables, first.parts.model, placement):
                return build()

        # weights that one device has no memory for are on several ones while they are measured
        sizes = [LayerCost(layer.name, 0.0, weight_bytes(layer), 1 + weight_bytes(layer)) for layer in layers]
        measured = Placement(names, cut_layers(sizes, [0] * len(sizes), devices))
        setup = build_on(measured)
        sources = setup.read_sources()
        self.counts = {split: source.count for split, source in sources.items()}
        inputs, _ = sources["train"].first_batch(batch_size)
        costs, copied = measure_layers(setup.parts.model, measured, inputs)
        self.placement = Placement(names, cut_layers(costs, copied, devices))
        self.parts = describe_parts(costs, self.placement.numbers, names)
        total = sum(copied[at] for at in range(1, len(costs)) if _is_cut(self.placement, at))
        check_gain(self.parts, total, _device_memory(devices, gpu_memory_mb))
        _log_parts(self.parts, total)
        self.setup = build_on(self.placement)
        set_jit_compile(self.setup.parts.model, "off")  # XLA compiles a step for one device
        if keras_models.is_keras_2(self.setup.parts.model):
            self.setup.parts.model.optimizer.jit_compile = False  # as Keras 2 does in its own strategies


def _is_cut(placement: Placement, at: int) -> bool:
    return placement.numbers[at] != placement.numbers[at - 1]


def check_model(model: Any, layers: list[Any], devices: int) -> None:
    """Raise ComponentError if there are fewer layers than devices, or the model is compiled for XLA."""
    if len(layers) < devices:
        received = f"model_parallel={devices} for {len(layers)} layers"
        raise ComponentError(received, "a layer for each device", "pass a smaller number, or leave model_parallel out")
    if model._compile_config.config.get("jit_compile") is True:
        received = "model_parallel for a model that is compiled with jit_compile=True"
        expected = "steps without XLA, which compiles for one device"
        raise ComponentError(received, expected, "leave jit_compile out of compile(), or leave model_parallel out")


def _device_memory(devices: int, gpu_memory_mb: int) -> int:
    """Return the memory of one device in bytes; parts of a CPU share that of the machine."""
    if gpu_memory_mb:
        return gpu_memory_mb << 20
    gpus = [int(str(gpu["memory"]).split()[0]) << 20 for gpu in list_gpus()]
    return min(gpus, default=psutil.virtual_memory().total // devices)


def _log_parts(parts: list[Part], copied: int) -> None:
    for part in parts:
        log.info(
            "%s: %s to %s (%d layers), %.0f %% of the time and %.0f %% of the memory, %s of weights",
            *(part.device, part.layers[0], part.layers[-1], len(part.layers)),
            *(100 * part.time_share, 100 * part.memory_share, data_size(part.weight_bytes)),
        )
    log.info("%s are copied between devices in each pass", data_size(copied))
