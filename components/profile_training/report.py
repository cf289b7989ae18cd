"""The page that shows what was found: the sentences, where a step's time goes, and what each setting gave."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt import formatting as wording

PARTS = {
    "wait": "waiting for data",
    "host": "Python",
    "device": "the model's operations",
}
WIDTH, LEFT, ROW = 720, 230, 34  # of the picture of ratios, in pixels
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def page(content: Mapping[str, Any], module: str) -> str:
    """The content of ``plan.json`` as HTML with everything in it.

    Args:
        content: The JSON.
        module: The name of the user's file.
    """
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    pages.filters |= {"times": wording.times, "size": wording.data_size, "ms": milliseconds}
    return pages.get_template("report.html.j2").render(
        **content, module=module, step=_step(content["step_ms"]), picture=_ratios(content), version=tfopt.__version__
    )


def milliseconds(value: float) -> str:
    """A time for people.

    >>> milliseconds(0.04), milliseconds(12.34), milliseconds(2500)
    ('0.040 ms', '12.3 ms', '2.50 s')
    """
    return f"{value / 1e3:#.3g} s" if value >= 1000 else f"{value:#.3g} ms" if value >= 0.1 else f"{value:.3f} ms"


def _step(parts: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"key": key, "name": name, "ms": parts[key], "percent": 100 * parts[key] / parts["all"]}
        for key, name in PARTS.items()
    ]


def _ratios(content: Mapping[str, Any]) -> dict[str, Any]:
    """Where each setting's interval lies on a logarithmic axis around 1."""
    rows = [row for row in content["trials"] if row["speedup"]]
    effect = 1 + content["interval"]["min_effect"]
    ends = [0.8, 1.25, 1 / effect, effect, *(row["speedup"][end] for row in rows for end in ("low", "high"))]
    low, high = min(ends) / 1.1, max(ends) * 1.1

    def at(value: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * math.log(value / low) / math.log(high / low)

    marks = [
        {
            "name": row["name"],
            "verdict": row["speedup"]["verdict"].replace(" ", "-"),
            "y": ROW * index + ROW / 2 + 8,
            "low": at(row["speedup"]["low"]),
            "high": at(row["speedup"]["high"]),
            "middle": at(row["speedup"]["value"]),
            "said": wording.times(row["speedup"]["value"]),
        }
        for index, row in enumerate(rows)
    ]
    return {
        "width": WIDTH,
        "height": ROW * len(rows) + 44,
        "base": ROW * len(rows) + 12,
        "marks": marks,
        "one": at(1),
        "band": (at(1 / effect), at(effect)),
        "ticks": [(at(value), f"{value:g}x") for value in TICKS if low <= value <= high],
        "left": LEFT,
    }
