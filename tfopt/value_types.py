"""Types of values that are passed on by name: JSON, tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

JsonValue = bool | int | float | str | Sequence[object] | Mapping[str, object] | None
JsonObject = dict[str, JsonValue]
Tensors = dict[str, Any]  # tf.Tensor by name; TensorFlow has no types here
