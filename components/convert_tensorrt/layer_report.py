"""Which layer of an engine is computed in which precision, from what TensorRT's inspector tells as JSON."""

import json
import re
from collections import Counter
from typing import Any

# Words for a type, as they stand in the inspector's texts; version 10 has one text for format and type, 11 has two.
WORDS = {
    "int8": r"int8",
    "fp8": r"fp8|float8",
    "bf16": r"bf16|bfloat16",
    "fp16": r"fp16|half|float16",
    "fp32": r"fp32|\bfloat\b|float32",
}
WIDTH = {"int8": 1, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
ASKED = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1}
# Layers that only move, store or round values, or wait for others, in TensorRT's words.
MOVES = ("reformat", "noop", "constant", "shuffle", "cast", "quantize", "shape", "copy", "identity", "concat", "slice")
WAITS = ("signal", "wait")
UNTOLD = re.compile(r"\bn/a\b")  # "N/A due to dynamic shapes"


def report(told: str, precision: str) -> dict[str, Any]:
    """Count the layers by precision, and name those that are computed in a wider one than was asked for.

    Of a layer that is ``unknown`` TensorRT tells no type; it may have fallen back or not. Integers and truth values,
    which no precision is asked for, are ``other``.

    Args:
        told: The JSON of ``IEngineInspector.get_engine_information``, of an engine built with detailed verbosity.
        precision: What was asked for.
    """
    found = [_layer(layer) for layer in json.loads(told).get("Layers", []) if isinstance(layer, dict)]
    computed = [layer for layer in found if not layer["moves"]]
    wide = [layer for layer in computed if WIDTH.get(layer["precision"], 0) > ASKED[precision]]
    return {
        "count": len(found),
        "precisions": dict(sorted(Counter(layer["precision"] for layer in computed).items())),
        "fell_back": [layer["name"] for layer in wide],
        "all": [{key: layer[key] for key in ("name", "type", "precision")} for layer in found],
    }


def _layer(told: dict[str, Any]) -> dict[str, Any]:
    kind = str(told.get("LayerType", "unknown"))
    return {
        "name": str(told.get("Name", "")),
        "type": kind,
        "precision": _precision(told),
        "moves": any(word in kind.lower() for word in MOVES + WAITS),
    }


def _precision(told: dict[str, Any]) -> str:
    """The narrowest type that goes in, as a convolution of bytes may give floats; else the weights' or the output's."""
    seen: list[str | None] = []
    for side in ("Inputs", "Weights", "Outputs"):
        types = [_type(tensor) for tensor in _tensors(told.get(side))]
        floats = [name for name in types if name in WIDTH]
        if floats:
            return min(floats, key=lambda name: WIDTH[name])
        seen += types
    return "other" if seen and None not in seen else "unknown"


def _tensors(told: Any) -> list[dict[str, Any]]:
    """What a layer has on a side; weights stand there without a list, and with a count of none where it has none."""
    found = told if isinstance(told, list) else [told]
    return [tensor for tensor in found if isinstance(tensor, dict) and tensor.get("Count") != 0]


def _type(tensor: dict[str, Any]) -> str | None:
    """A type with a width, or ``other``; None where it is not told."""
    texts = sorted((key.lower(), str(text).lower()) for key, text in tensor.items())
    keyed = ([text for key, text in texts if word in key] for word in ("datatype", "format", "type"))
    said = [text for text in next(filter(None, keyed), []) if not UNTOLD.search(text)]
    known = (name for text in said for name, words in WORDS.items() if re.search(words, text))
    return next(known, "other" if said else None)
