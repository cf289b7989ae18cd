"""Precision of each layer of an engine, from the JSON of TensorRT's inspector."""

import json
import re
from collections import Counter
from typing import Any

from tfopt.value_types import JsonObject

# Patterns of the inspector's texts; TensorRT 10 has one text for format and type, TensorRT 11 has two.
TYPES = {
    "int8": r"int8",
    "fp8": r"fp8|float8",
    "bf16": r"bf16|bfloat16",
    "fp16": r"fp16|half|float16",
    "fp32": r"fp32|\bfloat\b|float32",
}
WIDTH = {"int8": 1, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
REQUESTED_WIDTH = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1, "auto": 2}
# Layers that only move, store or round values, and synchronization.
MOVES = ("reformat", "noop", "constant", "shuffle", "cast", "quantize", "shape", "copy", "identity", "concat", "slice")
WAITS = ("signal", "wait")
NOT_AVAILABLE = re.compile(r"\bn/a\b")  # "N/A due to dynamic shapes"


def summarize(information: str, precision: str) -> JsonObject:
    """Count the layers by precision, and name those that compute in a wider precision than requested.

    ``information`` is the JSON of ``IEngineInspector.get_engine_information``, of an engine with detailed verbosity.
    A layer is ``unknown`` if TensorRT reports none of its types; it may be wider or not. Integers and booleans, which
    have no requested precision, are ``other``.
    """
    layers = [
        {
            "name": str(layer.get("Name", "")),
            "type": str(layer.get("LayerType", "unknown")),
            "precision": _precision(layer),
        }
        for layer in json.loads(information).get("Layers", [])
        if isinstance(layer, dict)
    ]
    computing = [layer for layer in layers if not any(word in layer["type"].lower() for word in MOVES + WAITS)]
    wide = [layer for layer in computing if WIDTH.get(layer["precision"], 0) > REQUESTED_WIDTH[precision]]
    return {
        "count": len(layers),
        "precisions": dict(sorted(Counter(layer["precision"] for layer in computing).items())),
        "fell_back": [layer["name"] for layer in wide],
        "all": layers,
    }


def _precision(layer: JsonObject) -> str:
    """Return the narrowest input type, as an int8 convolution may output floats; else that of weights or outputs."""
    others: list[str | None] = []
    for side in ("Inputs", "Weights", "Outputs"):
        found: Any = layer.get(side)
        tensors = found if isinstance(found, list) else [found]  # weights are one object; without any its count is 0
        types = [_type(tensor) for tensor in tensors if isinstance(tensor, dict) and tensor.get("Count") != 0]
        floats = [name for name in types if name in WIDTH]
        if floats:
            return min(floats, key=lambda name: WIDTH[name])
        others += types
    return "other" if others and None not in others else "unknown"


def _type(tensor: JsonObject) -> str | None:
    """Return a type with a width, or ``other``; None if it is not reported."""
    texts = sorted((key.lower(), str(text).lower()) for key, text in tensor.items())
    by_key = ([text for key, text in texts if word in key] for word in ("datatype", "format", "type"))
    available = [text for text in next(filter(None, by_key), []) if not NOT_AVAILABLE.search(text)]
    types = (name for text in available for name, pattern in TYPES.items() if re.search(pattern, text))
    return next(types, "other" if available else None)
