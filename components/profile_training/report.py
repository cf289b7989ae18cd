"""The report of a profile: findings as sentences, the parts of a step, and the speed of each variation."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt import formatting
from tfopt.components.profile_training.bottleneck import LOOP_KINDS, Bottleneck, StepTimes

PARTS = {
    "wait": "waiting for data",
    "host": "Python",
    "device": "the model's operations",
}
WHO = {
    "plan": "it is in the plan",
    "module": "only the module can set it",
    "environment": "only the environment can set it",
    "examples": "only the examples can set it",
    "batch": "it is not in the plan",
}
WIDTH, LEFT, ROW = 720, 230, 34  # of the chart of speedups, in pixels
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def render_report(content: Mapping[str, Any], module: str) -> str:
    """Render the content of ``plan.json`` as one HTML file without external resources.

    Args:
        content: The content.
        module: The name of the user's file.
    """
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    templates.filters |= {"times": formatting.ratio, "size": formatting.data_size, "ms": format_milliseconds}
    return templates.get_template("report.html.j2").render(
        **content, module=module, step=_step_parts(content["step_ms"]), chart=_chart(content), version=tfopt.__version__
    )


def format_milliseconds(value: float) -> str:
    """Format a time.

    >>> format_milliseconds(0.04), format_milliseconds(12.34), format_milliseconds(2500)
    ('0.040 ms', '12.3 ms', '2.50 s')
    """
    return f"{value / 1e3:#.3g} s" if value >= 1000 else f"{value:#.3g} ms" if value >= 0.1 else f"{value:.3f} ms"


def write_findings(
    bottleneck: Bottleneck,
    times: StepTimes,
    rows: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[dict[str, str]]:
    """Return sentences with their kinds: ``bottleneck``, a verdict, ``failed``, ``loop``, ``hint``.

    Args:
        bottleneck: The bottleneck.
        times: The step times.
        rows: The measured variations.
        facts: Facts about the machine and the model.
        settings: The plan.
    """
    findings = [{"kind": "bottleneck", "text": _sentence(bottleneck.sentence)}]
    fastest_first = sorted(rows, key=lambda row: -(row["speedup"] or {"value": 0})["value"])
    findings += [_variation_finding(row, settings) for row in fastest_first]
    findings += [{"kind": "loop", "text": _loop_finding(loop, rows)} for loop in times.loops if loop["line"]]
    if facts["odd_sizes"] and any("16" in row["name"] for row in rows):
        sizes = ", ".join(facts["odd_sizes"])
        findings.append({"kind": "hint", "text": f"16 bits are fastest with multiples of 8; these are not: {sizes}."})
    if not settings:
        findings.append({"kind": "hint", "text": "The plan is empty: no setting of train was measured to be faster."})
    return findings


def _variation_finding(row: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    if row["error"]:
        text = f"{row['name']}: not possible: {row['error'].splitlines()[0]}"
        return {"kind": "failed", "text": _sentence(text)}
    speedup = row["speedup"]
    value, low, high = (formatting.ratio(speedup[end]) for end in ("value", "low", "high"))
    if speedup["verdict"] == "within noise":
        return {"kind": "within noise", "text": _sentence(f"{row['name']}: within noise, {value} ({low} to {high})")}
    text = f"{row['name']}: {speedup['verdict']}, {value} ({low} to {high})"
    if speedup["verdict"] == "faster":
        who = WHO[row["where"]]
        planned = all(settings[name] == value for name, value in row["settings"].items() if name in settings)
        if row["where"] == "plan" and not planned:
            who = "another setting was faster still"
        text += f"; {who}" + (f": {row['note']}" if row["note"] else "")
    return {"kind": speedup["verdict"], "text": _sentence(text)}


def _loop_finding(loop: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    where = "preprocess()" if loop["where"] == "preprocess" else "the step"
    text = f"Line {loop['line']} of the module, in {where}, is {LOOP_KINDS[loop['kind']]}: {loop['code']}."
    if loop["kind"] == "python":
        return f"{text} Write it with TensorFlow's operations, on the whole batch."
    if loop["kind"] == "unrolled":
        return f"{text} {loop['copies']} copies, which are independent: stack them into one operation."
    if not loop["independent"]:
        return f"{text} Each round needs the one before, so it cannot be batched as it is."
    gain = next((row["speedup"] for row in rows if row["name"] == "maps vectorized" and row["speedup"]), None)
    if gain and loop["kind"] == "map_fn":
        ratio = formatting.ratio(gain["value"])
        return f"{text} Its rounds are independent; all at once the step is {ratio} as fast."
    return f"{text} Its rounds are independent: run them at once. The gain was not measured."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def _step_parts(step_ms: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"key": key, "name": name, "ms": step_ms[key], "percent": 100 * step_ms[key] / step_ms["all"]}
        for key, name in PARTS.items()
    ]


def _chart(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the coordinates of each variation's interval on a logarithmic axis around 1."""
    rows = [row for row in content["trials"] if row["speedup"]]
    effect = 1 + content["interval"]["min_effect"]
    ends = [0.8, 1.25, 1 / effect, effect, *(row["speedup"][end] for row in rows for end in ("low", "high"))]
    low, high = min(ends) / 1.1, max(ends) * 1.1

    def to_x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * math.log(value / low) / math.log(high / low)

    marks = [
        {
            "name": row["name"],
            "verdict": row["speedup"]["verdict"].replace(" ", "-"),
            "y": ROW * index + ROW / 2 + 8,
            "low": to_x(row["speedup"]["low"]),
            "high": to_x(row["speedup"]["high"]),
            "middle": to_x(row["speedup"]["value"]),
            "text": formatting.ratio(row["speedup"]["value"]),
        }
        for index, row in enumerate(rows)
    ]
    return {
        "width": WIDTH,
        "height": ROW * len(rows) + 44,
        "base": ROW * len(rows) + 12,
        "marks": marks,
        "one": to_x(1),
        "band": (to_x(1 / effect), to_x(effect)),
        "ticks": [(to_x(value), f"{value:g}x") for value in TICKS if low <= value <= high],
        "left": LEFT,
    }
