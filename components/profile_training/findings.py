"""What was found, a sentence each with its numbers: what a person reads first."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfopt import formatting as wording
from tfopt.components.profile_training.bottleneck import WORDS, Bottleneck, Measured

WHO = {
    "plan": "it is in the plan",
    "module": "only the module can say that",
    "environment": "only the environment can say that",
    "examples": "only the examples can say that",
    "batch": "it is not in the plan",
}


def findings(
    named: Bottleneck,
    found: Measured,
    rows: Sequence[Mapping[str, Any]],
    built: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[dict[str, str]]:
    """Sentences with their kinds: ``bottleneck``, a verdict, ``failed``, ``loop``, ``hint``."""
    said = [{"kind": "bottleneck", "text": _sentence(named.sentence)}]
    order = sorted(rows, key=lambda row: -(row["speedup"] or {"value": 0})["value"])
    said += [_tried(row, settings) for row in order]
    said += [{"kind": "loop", "text": _looping(loop, rows)} for loop in found.loops if loop["line"]]
    if built["odd_sizes"] and any("16" in row["name"] for row in rows):
        sizes = ", ".join(built["odd_sizes"])
        said.append({"kind": "hint", "text": f"16 bits are fastest with multiples of 8; these are not: {sizes}."})
    if not settings:
        said.append({"kind": "hint", "text": "The plan is empty: no setting that train could be given proved faster."})
    return said


def _tried(row: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    if row["error"]:
        return {"kind": "failed", "text": _sentence(f"{row['name']}: cannot be: {row['error'].splitlines()[0]}")}
    ratio = row["speedup"]
    numbers = f"{wording.times(ratio['value'])} ({wording.times(ratio['low'])} to {wording.times(ratio['high'])})"
    if ratio["verdict"] == "within noise":
        return {"kind": "within noise", "text": _sentence(f"{row['name']}: within noise, {numbers}")}
    text = f"{row['name']}: {ratio['verdict']}, {numbers}"
    if ratio["verdict"] == "faster":
        who = WHO[row["where"]]
        if row["where"] == "plan" and not all(settings.get(k) == v for k, v in _own(row, settings).items()):
            who = "another setting was faster still"
        text += f"; {who}" + (f": {row['note']}" if row["note"] else "")
    return {"kind": ratio["verdict"], "text": _sentence(text)}


def _own(row: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in row["settings"].items() if name in settings}


def _looping(loop: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    where = "preprocess()" if loop["where"] == "preprocess" else "the step"
    told = f"Line {loop['line']} of the module, in {where}, is {WORDS[loop['kind']]}: {loop['code']}."
    if loop["kind"] == "python":
        return f"{told} Write it with TensorFlow's operations, on the whole batch."
    if loop["kind"] == "unrolled":
        return f"{told} {loop['copies']} copies, which need nothing of each other: stack them into one operation."
    if not loop["independent"]:
        return f"{told} Each round needs the one before, so it cannot be batched as it is."
    gain = next((row["speedup"] for row in rows if row["name"] == "maps vectorized" and row["speedup"]), None)
    if gain and loop["kind"] == "map_fn":
        return f"{told} Its rounds are independent; all at once the step is {wording.times(gain['value'])} as fast."
    return f"{told} Its rounds need nothing of each other: do them at once. What that gives was not measured."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")
