"""Each model that lost is told what it would take to win, and how sure that is."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.reports import DIGITS, TRAINED, Row, make_models, write_reports
from tfopt.artifacts import Decision
from tfopt.components.select_model.component import select_model

BEST = Row("best", accuracy=0.98, p50=0.1, speedup=(4.0, 3.9, 4.1, "faster"), size=90_000)
LOSSY = Row("lossy", accuracy=0.96, delta=(-0.021, -0.031, -0.012), p50=0.05, speedup=(8.0, 7.8, 8.2, "faster"))
ALSO = Row("also lossy", accuracy=0.96, delta=(-0.021, -0.028, -0.012), p50=0.03, speedup=(12.0, 11.8, 12.2, "faster"))
UNSURE = Row("unsure", p50=0.09, speedup=(4.2, 0.99, 9.0, "within noise"), size=50_000)
LARGE = Row("large", p50=0.1, speedup=(4.0, 3.9, 4.1, "faster"), size=100_000)
GOOD = Row("good", accuracy=0.984, delta=(0.003, 0.001, 0.008), size=90_000)
SAME = Row("same", p50=0.41, speedup=(1.0, 0.98, 1.02, "within noise"), size=180_000)


def to_win(rows: list[Row], folder: Path, **parameters) -> dict[str, str]:
    """What each model is told."""
    return {row["name"]: row["to_win"] for row in decided(rows, folder, **parameters)["models"]}


def selected(folder: Path, rows: list[Row], **parameters) -> str:
    return decided(rows, folder, **parameters)["selected"]


def decided(rows: list[Row], folder: Path, **parameters) -> dict:
    models = make_models(rows, folder / "models")
    evaluation, benchmark = write_reports(rows, models, folder, samples=False)
    given = {"goals": ["accuracy max_degradation 0.01"]} | parameters
    select_model(models[0], models[1:], evaluation, benchmark, folder / "s", folder / "d", folder / "b", **given)
    return Decision(folder / "d").read()


@pytest.mark.parametrize(
    ("rows", "parameters", "name", "said"),
    [
        ([BEST, LOSSY], {}, "lossy",
         "would win if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to -1.20)"),
        ([BEST, LOSSY], {"confidence": "point"}, "lossy",
         "would win if the goal allowed accuracy to be 2.10 points worse (measured: -2.10 points, -3.10 to -1.20)"),
        ([BEST, LOSSY], {"goals": ["accuracy threshold 0.97"]}, "lossy",
         "would win if the goal asked for accuracy of at least 95.10% (it has 96.00%, 95.10% to 96.80%)"),
        ([BEST, LOSSY], {"goals": ["accuracy max_degradation 0.01", "size min_improvement 50%"]}, "lossy",
         "would win if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to -1.20); and "
         "the goal asked for 36.4 kB better in size (measured: -36.4 kB)"),
        ([SAME], {}, "same",
         "would win if it were at least 3% faster than trained beyond doubt (measured: 1.00x, 0.98x to 1.02x)"),
        ([BEST, SAME], {"objective": "size"}, "same",
         "would win if it were 90.0 kB better in size (measured: -6.40 kB; best: -96.4 kB)"),
        ([BEST, LOSSY, ALSO], {}, "lossy",
         "would meet the goals if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to "
         "-1.20); to win, then if it were 1.51x as fast as it is (measured: 8.00x, 7.80x to 8.20x; also lossy: 12.0x, "
         "11.8x to 12.2x)"),
        ([BEST, UNSURE], {}, "unsure",
         "would win if it were 1.05x as fast as it is (measured: 4.20x, 0.99x to 9.00x; best: 4.00x, 3.90x to 4.10x)"),
        ([BEST, LARGE], {}, "large", "would win if it were smaller than best: in latency they cannot be told apart"),
        ([GOOD, LARGE], {"objective": "quality"}, "large",
         "would win if it were 0.81 points better in accuracy (measured: 0.00 points, 0.00 to 0.00; good: +0.30 "
         "points, +0.10 to +0.80)"),
    ],
    ids=["allowed more", "as measured", "a lower threshold", "two goals", "faster than the parent", "by size",
         "what lets it in lets in another", "not proven", "larger", "by quality"],
)  # fmt: skip
def test_it_says_which_goal_or_how_much_faster(tmp_path, rows, parameters, name, said):
    found = to_win([TRAINED, *rows], tmp_path, **parameters)
    assert found[name] == said
    assert found["trained"] == ""


def drawn(random: np.random.Generator, name: str) -> Row:
    """Some candidate: fast or not, proven or not, good or not."""
    low, value, high = np.sort(random.uniform(0.8, 4.0, 3)).round(3)
    loss, loss_low, loss_high = (
        round(float(x), 4) for x in random.normal(-0.008, 0.006) + np.array([0, -0.004, 0.004])
    )
    verdict = "faster" if low > 1.03 else "slower" if high < 1 / 1.03 else "within noise"
    speedup = (float(value), float(low), float(high), verdict)
    size = int(random.choice([60_000, 90_000, 120_000]))
    return Row(
        name, accuracy=0.981 + loss, delta=(loss, loss_low, loss_high), p50=0.4 / value, speedup=speedup, size=size
    )


@pytest.mark.parametrize("seed", range(12))
def test_what_is_said_comes_true(tmp_path, seed):
    """Each model is measured again as it was told it would have to be, or judged by the goal it was told of."""
    random = np.random.default_rng(seed)
    rows = [TRAINED, *(drawn(random, f"candidate {number}") for number in range(5))]
    for number, row in enumerate(rows):
        said = to_win(rows, tmp_path / f"{number}")[row.name]
        again: dict = {"rows": rows}
        if found := re.match(r"would win if it were ([\d.]+)x as fast as it is", said):
            value, low, high = (float(found[1]) * end for end in row.speedup[:3])
            verdict = "faster" if low > 1.03 else "slower" if high < 1 / 1.03 else "within noise"
            faster = replace(row, p50=row.p50 / float(found[1]), speedup=(value, low, high, verdict))
            again["rows"] = [*rows[:number], faster, *rows[number + 1 :]]
        elif found := re.match(r"would win if the goal allowed accuracy to be ([\d.]+) points worse", said):
            again["goals"] = [f"accuracy max_degradation {float(found[1]) / 100:.4f}"]
        elif said.startswith("would win if it were smaller"):
            again["rows"] = [*rows[:number], replace(row, size=1000), *rows[number + 1 :]]
        else:
            assert not said or said.startswith(("would meet the goals if", "would win if it were at least"))
            continue
        assert selected(tmp_path / f"{number} again", **again) == row.name


def test_of_two_that_are_equal_the_other_would_have_to_be_smaller_at_all(tmp_path):
    found = to_win([TRAINED, BEST, replace(BEST, name="twin")], tmp_path, objective="size")
    assert sorted(said.split(" (")[0] for said in found.values()) == ["", "", "would win if it were 1 B better in size"]


def test_what_could_not_be_measured_is_told_nothing(tmp_path):
    assert to_win([TRAINED, BEST, Row("broken", error="no")], tmp_path)["broken"] == ""


def test_all_candidates_are_told_what_it_would_take(tmp_path):
    models = make_models(DIGITS, tmp_path / "models")
    evaluation, benchmark = write_reports(DIGITS, models, tmp_path, samples=False)
    select_model(
        models[0], models[1:], evaluation, benchmark, tmp_path / "s", tmp_path / "d", tmp_path / "b",
        goals=["accuracy max_degradation 0.01"],
    )  # fmt: skip
    said = {row["name"]: row["to_win"] for row in Decision(tmp_path / "d").read()["models"]}
    assert said["trained"] == said["tflite int8"] == ""
    assert said["tflite float32"] == (
        "would win if it were 1.66x as fast as it is (measured: 6.73x, 6.60x to 6.86x; tflite int8: 10.6x, 10.3x to "
        "10.9x)"
    )
    assert said["pruned 90%"] == (
        "would meet the goals if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to "
        "-1.20); to win, then if it were 8.73x as fast as it is (measured: 1.30x, 1.25x to 1.34x; tflite int8: 10.6x, "
        "10.3x to 10.9x)"
    )
    assert "It would win if it were 1.66" in (tmp_path / "d" / "report.html").read_text()
