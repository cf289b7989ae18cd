"""The page that shows what was tried."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt import formatting as wording


def page(content: Mapping[str, Any]) -> str:
    """The content of ``recipe.json`` as HTML with everything in it but `select_model`'s own page."""
    here = Path(__file__).parent
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    parent = content["decision"]["models"][0]["metrics"]
    metric = next(iter(parent))
    trials = sorted(content["trials"], key=lambda row: (not row["winner"], row["score"]))
    rows = [{**row, **_numbers(row, metric)} for row in trials]
    earlier = [{**row, **_numbers(row, metric), **_then(row, metric)} for row in content["earlier"]]
    own = [_said({"metrics": parent}, name) for name in (metric, "latency", "size")]
    return pages.get_template("report.html.j2").render(
        **{**content, "trials": rows, "earlier": earlier},
        parent=own,
        metric=wording.title(metric),
        version=tfopt.__version__,
    )


def _numbers(row: Mapping[str, Any], metric: str) -> dict[str, str]:
    said = {name: _said(row, known) for name, known in (("quality", metric), ("latency", "latency"), ("size", "size"))}
    found = row["beside_parent"]
    return said | {"speed": wording.ratio(found["speed"]) if found else "\N{EN DASH}"}


def _then(row: Mapping[str, Any], metric: str) -> dict[str, str]:
    """When an earlier row was measured, and of what; of other weights or records only the change in quality counts."""
    said = f"measured on {row['time'][:10]}"
    if row["same_parent"] and row["same_examples"]:
        return {"of": "earlier", "said": said}
    of = "of another training" if not row["same_parent"] else "on other examples"
    gained = row["beside_parent"]["quality"]
    moved = f"{wording.distance(metric, abs(gained))} {'better' if gained > 0 else 'worse'}" if gained else "the same"
    return {"of": f"earlier, {of}", "said": f"{said}, beside the model of that run", "quality": moved}


def _said(row: Mapping[str, Any], metric: str) -> str:
    value = row["metrics"].get(metric)
    return "\N{EN DASH}" if value is None else wording.amount(metric, value)
