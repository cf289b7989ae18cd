"""A small pipeline with a price and a rate, and a result of `check_drift` about the first version that it pushed."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tfopt.artifacts import Model
from tfopt.reports.drift_report import ComparedSample, DriftDecision, DriftReport

PIPELINE = '''
from tests.toys import count, fail
from tfopt import Input, Steps
from tfopt.artifacts import Blessing, Files, Model


def counting(
    steps: Steps, data: Input[Files], model: Input[Model], blessing: Input[Blessing], *, destination: str,
    scale: float = 1.0, price: float = 0.0, rate: float = 0.0,
) -> None:
    """Count twice, and fail.

    Args:
        steps: Adds the steps.
        data: A file.
        model: A model.
        blessing: Its blessing.
        destination: Where versions are pushed to.
        scale: A factor.
        price: Of a node.
        rate: Of requests.
    """
    steps(count, id="first", data=data, scale=scale)
    steps(count, id="second", data=data, unit="lines")
    steps(fail, data=data)
    steps.benchmark(baseline=model, candidates=[model], price=price, rate=rate, max_p99_ms=20.0)
    steps.push_model(model=model, blessing=blessing, destination=destination)
'''


def write_drift(folder: Path, decision: DriftDecision = "nothing", name: str = "drift", **changes: str) -> Path:
    """Write a result about version 1 of the destination ``served`` in a folder, and return its path."""
    samples = [ComparedSample("a", 500, 500)] * 2
    facts = {"digest": Model.open(folder / "served" / "1").digest, "time": datetime.now(UTC).isoformat()} | changes
    report = DriftReport(decision, [], "tflite", facts["digest"], None, *samples, 0.95, [], [], facts["time"])
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "drift.json").write_text(json.dumps({"schema_version": 1, **asdict(report)}))
    return folder / name
