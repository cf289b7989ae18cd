"""The page that shows what was tried."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt import wording


def page(content: Mapping[str, Any]) -> str:
    """The content of ``recipe.json`` as HTML with everything in it but `select_model`'s own page."""
    here = Path(__file__).parent
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    parent = content["decision"]["models"][0]["metrics"]
    metric = next(iter(parent))
    rows = [
        {
            **row,
            "quality": _said(row, metric),
            "latency": _said(row, "latency"),
            "size": _said(row, "size"),
            "speed": wording.times(row["speedup"]) if row["speedup"] else "\N{EN DASH}",
        }
        for row in sorted(content["trials"], key=lambda row: (not row["winner"], row["score"]))
    ]
    own = [_said({"metrics": parent}, name) for name in (metric, "latency", "size")]
    return pages.get_template("report.html.j2").render(
        **{**content, "trials": rows}, parent=own, metric=wording.title(metric), version=tfopt.__version__
    )


def _said(row: Mapping[str, Any], metric: str) -> str:
    value = row["metrics"].get(metric)
    return "\N{EN DASH}" if value is None else wording.amount(metric, value)
