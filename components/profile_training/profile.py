"""The whole of the work: a training measured part by part, its bottleneck named, what could help tried beside it."""

import logging
import random
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.components.profile_training.bottleneck import LARGER, USUAL, Measured, bottleneck
from tfopt.components.profile_training.findings import findings
from tfopt.components.profile_training.interleaving import Pace, Runner, compare, started
from tfopt.components.profile_training.trace_events import LISTED
from tfopt.components.profile_training.training_variant import Setup
from tfopt.components.profile_training.variations import Variation, combined, variations
from tfopt.errors import ComponentError
from tfopt.measurement.machine_fingerprint import fingerprint
from tfopt.measurement.speedup import LEVEL, location
from tfopt.processes.rpc import AskedProcess, Refused

PARTS = ("real", "model", "graph", "larger", "usual", "input")
OPTIONAL = ("graph", "larger", "usual")
READING = ("real", "input")
TRACED = 20  # steps

log = logging.getLogger("tfopt")


def profile(base: Setup, pace: Pace, min_effect: float, target: Path) -> dict[str, Any]:
    """Measure, and return the content of ``plan.json``.

    Args:
        base: The training as it is.
        pace: How long each part and each setting is measured.
        min_effect: A relative difference in speed too small to matter.
        target: Where the profiler's trace is kept, in ``trace/``.

    Raises:
        ComponentError: When the training itself cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as name:
        folder = Path(name)
        with started(Variation("as it is", base, "plan"), folder, 0) as process:
            found, built, parts = diagnose(process, base, pace, target / "trace")
            named = bottleneck(found)
            log.info("%s", named.sentence)
            base = replace(base, count=built["count"])
            runner = Runner(Variation("as it is", base, "plan"), process)
            tried = variations(named.name, base, found, built)
            rows = compare(runner, tried, pace, folder, min_effect)
            together = combined(base, _winners(tried, rows))
            if together:
                tried = [*tried, together]
                rows += compare(runner, [together], pace, folder, min_effect)
            memory = process.ask("memory")
    settings = plan(base, tried, rows)
    return {
        "bottleneck": asdict(named),
        "findings": findings(named, found, rows, built, settings),
        "settings": settings,
        "baseline": base.planned() | {"batch_size": base.batch_size, "deterministic": base.deterministic},
        "step_ms": {"wait": found.wait, "host": found.host, "device": found.device, "all": found.step},
        "parts": parts,
        "stages_ms": dict(found.stages),
        "fixed_ms": found.fixed,
        "operations_ms": dict(list(found.spent.items())[:LISTED]),
        "loops": list(found.loops),
        "trials": rows,
        "memory_bytes": memory,
        "examples": built["count"],
        "first_step_s": built["first_step_s"],
        "devices": built["gpus"] or ["CPU"],
        "environment": fingerprint(),
        "interval": {"method": "Hodges-Lehmann, signed-rank", "level": LEVEL, "min_effect": min_effect},
    }


def diagnose(
    process: AskedProcess, base: Setup, pace: Pace, trace: Path
) -> tuple[Measured, Mapping[str, Any], dict[str, Any]]:
    """Measure the parts of a step in turns; return them, what the process said of itself, and the parts' intervals."""
    try:
        built = process.ask("build", base)
        whole = {name: [process.ask("burst", name, pace.burst)] for name in READING} if built["slow"] else {}
        loops = process.ask("loops")
        stages = process.ask("stages")
        small = LARGER * base.batch_size < USUAL
        seconds = whole | _in_turns(
            process, pace, [part for part in PARTS if part not in whole and (small or part != "usual")]
        )
        beginning = process.ask("beginning")
        lines = {loop["line"]: loop["operations"] for loop in loops if loop["where"] == "step"}
        steps = min(TRACED, max(2, int(2 / np.median(seconds["real"]))))
        spent, forward, at = process.ask("trace", str(trace), steps, lines)
    except Refused as failure:
        raise ComponentError(
            f"profile_training: {failure}",
            "a training that runs: its steps are measured as they are",
            "mend what the lines above show; train --debug shows the whole traceback",
        ) from failure
    middle = {name: float(np.median(each)) * 1e3 for name, each in seconds.items()}
    found = Measured(
        batch_size=base.batch_size,
        prefetch=base.prefetch,
        step=middle["real"],
        model=middle["model"],
        graph=None if built["eager"] else middle.get("graph"),
        larger=middle.get("larger"),
        usual=middle.get("usual"),
        input=middle["input"],
        stages={name: each * 1e3 for name, each in stages.items()},
        epoch=built["epoch"],
        beginning=beginning * 1e3,
        cached=built["cached"],
        eager=built["eager"],
        loops=[_timed(loop, at) for loop in loops],
        spent=spent,
        forward=forward,
    )
    real = seconds["real"]
    parts = {
        name: {"ms": middle[name], "step_over_it": _over(real, each) if len(real) == len(each) > 1 else None}
        for name, each in seconds.items()
    }
    return found, built, parts


def plan(base: Setup, tried: list[Variation], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What `train` is to be told: how the fastest setting that a plan may hold differs; empty when none is faster."""
    winners = _winners(tried, rows)
    return winners[0].setup.changes(base) if winners else {}


def _winners(tried: list[Variation], rows: list[dict[str, Any]]) -> list[Variation]:
    pairs = zip(tried, rows, strict=True)
    faster = [(one, row["speedup"]) for one, row in pairs if row["speedup"] and row["speedup"]["verdict"] == "faster"]
    return [one for one, _ in sorted(faster, key=lambda pair: -pair[1]["value"]) if one.where == "plan"]


def _in_turns(process: AskedProcess, pace: Pace, parts: list[str]) -> dict[str, list[float]]:
    """Seconds of a step, or of a batch, by part and round. A part that cannot be measured is left out."""
    draw, order = random.Random(pace.seed), list(parts)
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(pace.rounds):
        draw.shuffle(order)
        for name in [name for name in order if name in seconds]:
            try:
                seconds[name].append(process.ask("burst", name, pace.burst))
            except Refused as failure:
                if name in OPTIONAL:
                    log.info("the part %s cannot be measured: %s", name, str(failure).splitlines()[0])
                    del seconds[name]
                    continue
                raise
    return seconds


def _timed(loop: dict[str, Any], at: Mapping[int, float]) -> dict[str, Any]:
    kept = {name: value for name, value in loop.items() if name != "operations"}
    return kept | {"ms": at.get(loop["line"], 0.0) if loop["where"] == "step" else None}


def _over(real: list[float], part: list[float]) -> dict[str, float]:
    value, low, high = (float(end) for end in np.exp(location(np.log(np.array(real)) - np.log(np.array(part)))))
    return {"value": value, "low": low, "high": high}
