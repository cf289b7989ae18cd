"""What the component's texts mean: sizes of images and names of runtimes; and what is named when nobody names any."""

import re
from collections.abc import Sequence

from tfopt.errors import ComponentError, nearest

Size = tuple[int, int, int]

LIGHT = [
    "MobileNetV3Small",
    "MobileNetV2 0.35",
    "MobileNetV2 0.5",
    "MobileNetV3Large",
    "MobileNetV2",
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetV2B0",
    "ResNet50",
]
RUNTIMES = ("saved_model", "tflite", "onnx", "openvino")
SIZE = re.compile(r"(\d+)x(\d+)x([1-9]\d*)")


def read_size(text: str) -> Size:
    """Read HEIGHTxWIDTHxCHANNELS.

    >>> read_size("96x128x3")
    (96, 128, 3)

    Raises:
        ComponentError: When it is something else.
    """
    found = SIZE.fullmatch(text)
    if not found:
        raise ComponentError(f"size {text!r}", "HEIGHTxWIDTHxCHANNELS", "write for example 96x96x3")
    height, width, channels = map(int, found.groups())
    return height, width, channels


def read_formats(texts: Sequence[str]) -> list[str]:
    """Check the names of formats.

    Raises:
        ComponentError: When there is none, or one is not known.
    """
    known = (*RUNTIMES, "tensorrt")
    for text in texts or [""]:
        if text not in known:
            raise ComponentError(f"format {text!r}", f"some of {', '.join(known)}", nearest(text, known))
    return list(dict.fromkeys(texts))
