"""What a run does with an earlier run's recipe when its search is over, done before: by then hours would be lost."""

import json
from collections.abc import Mapping
from typing import Any

from tfopt.components.tune_recipe.earlier import add_earlier
from tfopt.components.tune_recipe.report import page


def rehearse(previous: Mapping[str, Any]) -> None:
    """Take over what an earlier run measured, as a run of the same model would that tried nothing, and show it.

    Args:
        previous: The content of the earlier run's ``recipe.json``.

    Raises:
        Exception: Of many kinds, where something in there is missing or is not what this version writes.
    """
    if "examples" not in previous:  # of a version from which nothing is taken over
        return
    now: dict[str, Any] = {name: previous[name] for name in ("decision", "examples")}
    now |= {"reason": "", "winner": None, "minutes": 0.0, "stopped": "", "goals": [], "objective": "", "trials": []}
    add_earlier(previous, now)
    page(now)
    json.dumps(now, allow_nan=False)
