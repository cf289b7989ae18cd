"""Keras 2 and Keras 3 models: load, save, and inspect layers and weights.

May import `tfopt.artifacts` and what is below it. The functions of `tfopt.keras_models.io` can be called from here.
"""

from tfopt.keras_models.io import (
    KerasObject,
    check_input_names,
    check_weights,
    input_names,
    is_keras_2,
    library,
    load,
    outputs_by_name,
    pack_inputs,
    place_saved_model,
    save,
    served_names,
    serving_function,
)

__all__ = [
    "KerasObject",
    "check_input_names",
    "check_weights",
    "input_names",
    "is_keras_2",
    "library",
    "load",
    "outputs_by_name",
    "pack_inputs",
    "place_saved_model",
    "save",
    "served_names",
    "serving_function",
]
