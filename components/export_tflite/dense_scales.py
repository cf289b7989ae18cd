"""One scale for a dense layer, in place of one for each of its channels, where that makes the file notably smaller.

A channel's scale and zero point take 12 bytes, and its bias has them once more. LiteRT loads no file that leaves out
the zero points, although all are 0. In a network of dense layers that is a thirteenth of the 8-bit file. Convolutions
keep theirs: their channels differ more, and have more weights each.
"""

from collections.abc import Callable
from typing import Any

from tfopt.components.export_tflite import flatbuffer

LEAST, LEAST_BYTES = 0.02, 4096  # of the file, below which it is not worth a second conversion
ALLOWED = 0.004  # more degradation: one record of the 256 that are compared changes its class


def lighter(
    content: bytes, again: Callable[[], bytes], degraded: Callable[[bytes], float], most: float | None = None
) -> tuple[bytes, dict[str, Any]]:
    """Return the file to keep, and what the model card says of the choice; nothing where there was none.

    Args:
        content: The 8-bit file with a scale for each channel.
        again: Makes it with one for each dense layer.
        degraded: Measures how far a file degrades, on records it was not calibrated on.
        most: The largest degradation allowed.
    """
    if flatbuffer.dense_scale_bytes(content) < max(LEAST * len(content), LEAST_BYTES):
        return content, {}
    other = again()
    found = {"channel": degraded(content), "layer": degraded(other)}
    limit = min(found["channel"] + ALLOWED, 1.0 if most is None else most)
    kept = "layer" if found["layer"] <= limit and len(other) < len(content) else "channel"
    facts = {"one_for_each": kept, "bytes": {"channel": len(content), "layer": len(other)}, "degradation": found}
    return other if kept == "layer" else content, {"dense_scales": facts}
