import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Names, Reads
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.keras_models.backbones import LIGHT_BACKBONES, read_backbones
from tfopt.measurement.goals import GOAL_MAPPING, read_goals

Size = tuple[int, int, int]  # height, width, channels

RUNTIMES = ("saved_model", "tflite", "onnx", "openvino")
LAYER_NAMES = ("size", "scale", "scores")  # in the modules that are written; the input has another name
SIZE = re.compile(r"(\d+)x(\d+)x([1-9]\d*)")


def read_size(text: str) -> Size:
    """Parse HEIGHTxWIDTHxCHANNELS.

    >>> read_size("96x128x3")
    (96, 128, 3)

    Raises:
        ComponentError: If the text has another form.
    """
    match = SIZE.fullmatch(text)
    if not match:
        raise ComponentError(f"size {text!r}", "HEIGHTxWIDTHxCHANNELS", "write for example 96x96x3")
    height, width, channels = map(int, match.groups())
    return height, width, channels


def format_size(size: Sequence[int]) -> str:
    """Return a size as text.

    >>> format_size((96, 128, 3))
    '96x128x3'
    """
    return "x".join(map(str, size))


def read_formats(texts: Sequence[str]) -> list[str]:
    """Check the names of formats, and return them without duplicates.

    Raises:
        ComponentError: If there is none, or one is unknown.
    """
    formats = (*RUNTIMES, "tensorrt")
    for text in texts or [""]:
        if text not in formats:
            raise ComponentError(f"format {text!r}", f"some of {', '.join(formats)}", nearest(text, formats))
    return list(dict.fromkeys(texts))


@dataclass(frozen=True)
class Settings:
    """Parameters of a comparison.

    Attributes:
        backbones: Names of ``keras.applications``, with a width multiplier if they have one: MobileNetV2 0.35.
        task: Output of the head: probabilities of classes, or numbers.
        classes: Number of classes, or of numbers. When not given: as in the examples.
        input_size: Size of the backbone's input: HEIGHTxWIDTHxCHANNELS. Images of another size are resized within the
            model. When not given: as in the examples; 224x224x3 without examples.
        image: The feature with the pixels, from 0 to 255, and the name of the model's input.
        label: The label feature.
        formats: Formats to measure, of saved_model, tflite, onnx, openvino and tensorrt; a format whose runtime is not
            installed is left out.
        goals: Goals in the syntax of `select_model`: "latency threshold 5" is at most 5 ms.
        objective: The metric that the selected backbone is best at, among those that meet the goals.
        confidence: The value that must meet a goal: the pessimistic bound of the interval, or the measured point.
        epochs: Number of epochs for each backbone.
        records: Largest number of examples of the split ``train`` to train on, drawn at random.
        batch_size: Examples per training step.
        minutes: Time budget of the whole comparison.
        seconds: Measuring time of each backbone in each runtime. Loading and warm-up come on top.
        threads: Threads, and cores, of each model whose speed is measured.
        seed: Seed of the weights, of the drawn examples, and of the order of the turns.
    """

    backbones: Annotated[tuple[str, ...], Reads(read_backbones, ("MobileNetV2 0.35", "ResNet50")), Names()] = (
        LIGHT_BACKBONES
    )
    task: Literal["classification", "regression"] = "classification"
    classes: Annotated[int, Between(1)] | None = None
    input_size: Annotated[str, Reads(read_size, "96x96x3")] | None = None
    image: str = "image"
    label: str = "label"
    formats: Annotated[tuple[str, ...], Reads(read_formats, ("tflite", "onnx")), Names()] = RUNTIMES
    goals: Annotated[tuple[str, ...], Reads(read_goals, ("latency threshold 5",), GOAL_MAPPING)] = (
        "quality max_degradation 1%",
    )
    objective: Literal["latency", "size", "size_gzipped", "memory", "quality"] = "latency"
    confidence: Literal["interval", "estimate", "point"] = "interval"
    epochs: Annotated[int, Between(1)] = 3
    records: Annotated[int, Between(1)] = 10_000
    batch_size: Annotated[int, Between(1)] = 64
    minutes: Annotated[float, Between(0.1)] = 120.0
    seconds: Annotated[float, Between(0.1)] = 6.0
    threads: Annotated[int, Between(1)] = 1
    seed: int = 0
