"""How many layers must stay in float until the answers are good enough: the worst ones, twice as many at each try.

At most half of them: a file with more is not of the precision that was asked for.
"""

import re
from collections.abc import Callable
from typing import Any

from tfopt.components.export_tflite.layer_recipe import Recipe
from tfopt.errors import ComponentError


def settle(
    recipe: Recipe, rules: list[tuple[str, str]], most: float, degraded: Callable[[bytes], float]
) -> tuple[bytes, dict[str, Any]]:
    """Return the first file that degrades no more than that, and what the model card says of the way there.

    Args:
        recipe: The float file, to be quantized.
        rules: Kept in every try.
        most: The largest degradation allowed.
        degraded: Measures that of a file, on records it was not calibrated on.

    Raises:
        ComponentError: When half of the layers in float are not enough.
    """
    content = recipe.quantized(rules)
    tried = [{"in_float": 0, "degradation": degraded(content)}]
    worst = recipe.worst(content) if tried[0]["degradation"] > most else []
    while tried[-1]["degradation"] > most and tried[-1]["in_float"] < len(worst) // 2:
        count = min(max(1, 2 * int(tried[-1]["in_float"])), len(worst) // 2)
        content = recipe.quantized([*rules, *((_alone(name), "float32") for name in worst[:count])])
        tried.append({"in_float": count, "degradation": degraded(content)})
    last = tried[-1]
    if last["degradation"] > most:
        raise ComponentError(
            f"degradation {last['degradation']:.3g} with {last['in_float']} of {len(worst)} layers left in float32",
            f"at most max_degradation={most:g}",
            "allow more, calibrate on more examples, or choose a higher precision",
        )
    return content, {"left_in_float": worst[: int(last["in_float"])], "tried": tried}


def _alone(name: str) -> str:
    """The pattern of this layer and no other."""
    return f"^{re.escape(name)}(;|$)"
