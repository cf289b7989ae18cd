"""The page that shows the comparison: the choice, the Pareto picture, a row for each backbone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt import formatting as wording
from tfopt.charts.axes import CHART_CSS
from tfopt.charts.bubble_chart import Bubble, BubbleChart, draw_bubbles

WIDE, NARROW = 760, 356
DASH = "\N{EN DASH}"


def page(content: Mapping[str, Any]) -> str:
    """The content of ``comparison.json`` as HTML with everything in it."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    rows = sorted(content["backbones"], key=lambda row: (not row["chosen"], not row["passed"], _latency(row)))
    return pages.get_template("report.html.j2").render(
        **{**content, "backbones": [_said(row, content) for row in rows]},
        metric_title=wording.title(content["metric"]) if content["metric"] else None,
        pictures=_pictures(content),
        css=CHART_CSS.read_text(),
        version=tfopt.__version__,
    )


def _latency(row: Mapping[str, Any]) -> float:
    return float(row["runtimes"][row["fastest"]]["latency"]["1"]["p50"]) if row["fastest"] else float("inf")


def _said(row: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    metric, fastest = content["metric"], row["runtimes"].get(row["fastest"] or "")
    moved = row["delta"].get(metric or "")
    ends = wording.change_interval(metric, moved.get("low"), moved.get("high")) if moved and metric else ""
    return {
        **row,
        "quality": wording.amount(metric, row["metrics"][metric]["value"]) if metric in row["metrics"] else DASH,
        "between": f"{wording.change(metric, moved['value'])} ({ends})" if moved and metric else "",
        "latency": wording.amount("latency", _latency(row)) if fastest else DASH,
        "size": wording.data_size(fastest["sizes"]["raw"]) if fastest else DASH,
        "parameters": wording.count(row["parameters"]) if row["parameters"] else DASH,
        "flops": wording.count(row["flops"]) if row["flops"] else DASH,
        "training": f"{row['train_seconds']:.0f} s" if row["train_seconds"] else DASH,
        "by_runtime": [_in_runtime(row["runtimes"].get(kind), kind == row["fastest"]) for kind in content["formats"]],
    }


def _in_runtime(found: Mapping[str, Any] | None, fastest: bool) -> dict[str, Any]:
    if not found or not found.get("latency"):
        return {"latency": DASH, "size": "", "why": found["error"] if found else "", "unsteady": "", "fastest": False}
    latency = found["latency"]["1"]
    return {
        "latency": wording.amount("latency", latency["p50"]),
        "size": wording.data_size(found["sizes"]["raw"]),
        "why": "",
        "unsteady": "" if latency["stable"] else "; ".join(found["notes"]),
        "fastest": fastest,
    }


def _pictures(content: Mapping[str, Any]) -> Sequence[str]:
    """The same twice: for a desk and for a phone."""
    metric = content["metric"]
    rows = [row for row in content["backbones"] if row["fastest"] and (metric is None or metric in row["metrics"])]
    bubbles = [_bubble(row, metric) for row in rows]
    about = f"{wording.title(metric)}, latency and size" if metric else "size and latency"
    plane = BubbleChart(
        bubbles=bubbles,
        title=f"{about.capitalize()} of {len(rows)} backbones",
        description=f"{'; '.join(bubble.tooltip for bubble in bubbles)}. Chosen: {content['chosen']}.",
        across="latency in ms (p50, fastest runtime), faster to the left",
        up=f"{wording.title(metric)}, better upwards" if metric else "size in MB, smaller upwards",
        more_is_better=bool(metric) and rows[0]["metrics"][metric]["higher_is_better"],
        share=bool(metric) and wording.is_share(metric),
        least=0.01 if metric and wording.is_share(metric) else 0.5 * max(bubble.up for bubble in bubbles),
        spread=metric is None,
    )
    heights = 360 + 14 * len(rows), 300 + 24 * len(rows)
    return [
        draw_bubbles(plane, width, height, f"front-{name}")
        for width, height, name in zip((WIDE, NARROW), heights, ("wide", "narrow"), strict=True)
    ]


def _bubble(row: Mapping[str, Any], metric: str | None) -> Bubble:
    found, milliseconds = row["runtimes"][row["fastest"]], _latency(row)
    size, work = found["sizes"]["raw"], f"{wording.count(row['flops'])}FLOP"
    learnt = row["metrics"][metric] if metric else None
    said = [row["name"], wording.amount(metric, learnt["value"])] if metric and learnt else [row["name"]]
    said += [wording.amount("latency", milliseconds), wording.data_size(size), work]
    return Bubble(
        name=row["name"],
        note=wording.data_size(size) if learnt else work,
        tooltip=", ".join(said) + (", on the Pareto front" if row["pareto"] else ""),
        across=milliseconds,
        up=learnt["value"] if learnt else size / 1e6,
        area=size if learnt else row["flops"],
        kind="chosen" if row["chosen"] else "other",
        front=row["pareto"],
        ranges=((milliseconds, milliseconds), (learnt["low"], learnt["high"])) if learnt else None,
    )
