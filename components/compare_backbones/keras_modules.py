"""Write a backbone as the Python module that `train` reads, and that users can edit."""

from tfopt.components.compare_backbones.parameters import format_size
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.keras_models.backbones import Backbone

NEWLINE = "\n"
# activation, loss, metric and description of the output
HEADS = {
    "classification": ("softmax", "sparse_categorical_crossentropy", "accuracy", "the probabilities of {} classes"),
    "regression": (None, "mean_squared_error", "mae", "{} numbers"),
}


def module_text(backbone: Backbone, resolved: ResolvedSettings) -> str:
    """Return the source of the module."""
    activation, loss, metric, output = HEADS[resolved.settings.task]
    image, size = resolved.settings.image, resolved.input_size
    preprocess = _preprocess(backbone, resolved)
    name = "".join(letter if letter.isalnum() else "_" for letter in str(backbone).lower())
    activated = f', activation="{activation}"' if activation else ""
    return f'''"""{backbone} for images of {format_size(size)}, as measured by `tfopt compare_backbones`.

The input is ``{image}``, raw pixels from 0 to 255. The output is {output.format(resolved.classes)}.
The initial weights are random, not pretrained.
"""

{f"from typing import Any{NEWLINE}{NEWLINE}" if preprocess else ""}import keras
from keras import layers

{preprocess}
def build_model() -> keras.Model:
    """Build the backbone with global average pooling and a head."""
    image = layers.Input({size}, name="{image}")
    backbone = keras.applications.{backbone.builder}(
        include_top=False,
        weights=None,
        input_tensor=image,
        pooling="avg",
{"".join(f"        {option},{NEWLINE}" for option in backbone.options)}    )
    for layer in backbone.layers:  # keras.applications sets 0.99 or 0.999, for trainings of many thousand steps
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9
    flow = layers.Dropout(0.2)(backbone.output)
    scores = layers.Dense({resolved.classes}{activated}, name="scores")(flow)
    model = keras.Model(image, scores, name="{name}")
    model.compile(keras.optimizers.Adam(1e-3), "{loss}", metrics=["{metric}"])
    return model
'''


def file_name(backbone: Backbone) -> str:
    """Return the file name of a backbone's module: ``MobileNetV2_0.35.py``."""
    return f"{backbone}.py".replace(" ", "_")


def _preprocess(backbone: Backbone, resolved: ResolvedSettings) -> str:
    image, size = resolved.settings.image, resolved.input_size
    steps = []
    if resolved.stored_size != size:
        steps += [f"layers.Reshape({resolved.stored_size})", f'layers.Resizing({size[0]}, {size[1]}, name="size")']
    if not backbone.architecture.scales_pixels:
        steps.append('layers.Rescaling(1 / 127.5, offset=-1.0, name="scale")')
    if not steps:
        return ""
    lines = "".join(f"    image = {step}(image)\n" for step in steps)
    return f'''
def preprocess(features: dict[str, Any]) -> dict[str, Any]:
    """Prepare the pixels for the backbone. These become the first layers of the saved model."""
    image = features["{image}"]
{lines}    return {{"{image}": image}}

'''
