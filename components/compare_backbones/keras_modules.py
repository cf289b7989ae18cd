"""A backbone as the Python file that `train` takes: what is compared is what a person gets to edit."""

from tfopt.components.compare_backbones.backbones import Backbone
from tfopt.components.compare_backbones.reading import Size
from tfopt.components.compare_backbones.request import Question

NEWLINE = "\n"
HEADS = {
    "classification": ("softmax", "sparse_categorical_crossentropy", "accuracy", "the probabilities of {} classes"),
    "regression": (None, "mean_squared_error", "mae", "{} numbers"),
}


def module_text(backbone: Backbone, asked: Question) -> str:
    """Return the text of the module."""
    activation, loss, metric, gives = HEADS[asked.task]
    preprocess = _preprocess(backbone, asked)
    activated = f', activation="{activation}"' if activation else ""
    gives = gives.format(asked.classes)
    return f'''"""{backbone} for images of {_words(asked.taken)}, as `tfopt compare_backbones` measured it.

It takes ``{asked.image}``, raw pixels from 0 to 255, and returns {gives}.
The weights are drawn, not pretrained.
"""

{f"from typing import Any{NEWLINE}{NEWLINE}" if preprocess else ""}import keras
from keras import layers

{preprocess}
def build_model() -> keras.Model:
    """The backbone, a mean over what is left of the image, and a head."""
    image = layers.Input({asked.taken}, name="{asked.image}")
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
    scores = layers.Dense({asked.classes}{activated}, name="scores")(flow)
    model = keras.Model(image, scores, name="{_identifier(str(backbone))}")
    model.compile(keras.optimizers.Adam(1e-3), "{loss}", metrics=["{metric}"])
    return model
'''


def file_name(backbone: Backbone) -> str:
    """The name of its file: ``MobileNetV2_0.35.py``."""
    return f"{backbone}.py".replace(" ", "_")


def _preprocess(backbone: Backbone, asked: Question) -> str:
    steps = []
    if asked.stored != asked.taken:
        steps += [
            f"layers.Reshape({asked.stored})",
            f'layers.Resizing({asked.taken[0]}, {asked.taken[1]}, name="size")',
        ]
    if not backbone.family.scales:
        steps.append('layers.Rescaling(1 / 127.5, offset=-1.0, name="scale")')
    if not steps:
        return ""
    lines = "".join(f"    image = {step}(image)\n" for step in steps)
    return f'''
def preprocess(features: dict[str, Any]) -> dict[str, Any]:
    """What the backbone wants to see. This becomes the first layers of the saved model."""
    image = features["{asked.image}"]
{lines}    return {{"{asked.image}": image}}

'''


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


def _words(size: Size) -> str:
    return "x".join(map(str, size))
