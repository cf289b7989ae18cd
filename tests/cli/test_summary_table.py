"""Test the table at the end of a run: its content, and its width in several terminals."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.reports import DIGITS, make_models, write_reports
from tfopt.cli.terminal.summary_table import print_summary
from tfopt.components.select_model.component import select_model


@pytest.fixture
def printed(tmp_path):
    def show(rows=DIGITS, chosen_on_it=(), notes=(), record_notes=(), **settings) -> str:
        models = make_models(rows, tmp_path / "models")
        evaluation, benchmark = write_reports(rows, models, tmp_path, samples=False)
        content = evaluation.read() | {"chosen_on_it": list(chosen_on_it), "notes": list(record_notes)}
        content["models"][-1]["notes"] = list(notes)
        evaluation.write(content)
        goals = settings.pop("goals", ["accuracy max_degradation 0.01"])
        outputs = select_model(
            models[0], models[1:], evaluation, benchmark, *(tmp_path / n for n in "sdb"), goals=goals
        )
        console = Console(file=io.StringIO(), **settings) if settings else None
        print_summary(outputs["decision"], evaluation, benchmark, console)
        return console.file.getvalue() if console else ""

    return show


def test_the_table_shows_each_model_and_its_reason(printed, capsys):
    printed()
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert text.isascii()
    assert re.split(r"\s{2,}", text.splitlines()[0].strip()) == [
        "model", "accuracy", "change", "latency", "speed", "size", "result"
    ]  # fmt: skip
    lines = text.splitlines()
    assert [line.split("  ")[0] for line in lines[1 : len(DIGITS) + 1]] == [row.name for row in DIGITS]  # a line each
    assert " ".join(lines[5].split()) == "tflite int8 97.7% -0.4 0.0389 ms 10.6x 45.1 kB selected: 10.6x, 76% smaller"
    assert lines[2].rstrip().endswith("1.37x; tflite int8 is 10.6x")
    assert lines[6].rstrip().endswith("misses accuracy by 2.10 points")
    assert "best epochs" not in text
    assert "smaller.\n" in text
    assert "1,000 records cannot exclude a loss of less than 0.37 points of accuracy" in " ".join(text.split())


def test_a_missing_blessing_is_shown(printed, capsys):
    printed(DIGITS[:2], goals=["accuracy threshold 0.999"])
    assert "not blessed: it will not be pushed" in capsys.readouterr().out


def test_a_warning_is_shown_if_epochs_were_chosen_on_the_same_examples(printed, capsys):
    printed(DIGITS[:3], chosen_on_it=["trained"])
    assert "evaluated on the examples that the best epochs were chosen on (split eval)" in capsys.readouterr().out


def test_the_notes_of_an_evaluation_are_shown(printed, capsys):
    printed(DIGITS[:3], notes=["50 of the 50 records"])
    assert "\ntflite float32: 50 of the 50 records\n" in capsys.readouterr().out


@pytest.mark.parametrize("settings", [{"width": 80, "force_terminal": True}, {"width": 100, "legacy_windows": True}])
def test_a_narrow_or_plain_terminal_shows_all_words(printed, settings):
    rows = [*DIGITS, replace(DIGITS[2], name="a very long name of a folder 2026-11-21", error="cannot\nload it")]
    text = printed(rows, **settings)
    for word in ("trained", "97.7%", "0.0389", "10.6x", "45.1", "misses", "not measured"):
        assert word in text.replace("\n", "")
    assert "a very lo" in text and "-11-21" in text


def test_long_names_that_differ_stay_different(printed):
    names = ["pruned 50%, exported as tflite int8", "pruned 50% + clustered 8, exported as tflite int8"]
    text = printed([*DIGITS[:2], *(replace(DIGITS[2], name=name) for name in names)], width=100)
    shown = [line.split("  ")[0] for line in text.splitlines()[3:5]]
    assert shown == ["pruned 50%,.. tflite int8", "pruned 50% .. tflite int8"]


@pytest.mark.parametrize("count", [2, 6])
def test_an_unstable_speed_is_explained_below_the_table(printed, capsys, count):
    unstable = (9.6, 4.9, 12.8, "unstable")
    names = [f"int8 {number}" for number in range(count)]
    printed([DIGITS[0], *(replace(DIGITS[4], name=name, speedup=unstable) for name in names)])
    text = " ".join(capsys.readouterr().out.split())
    assert f"The speed of {count} of {count + 1} models is unstable" in text
    line = f"{', '.join(names)}: speed unstable: not compared, because other processes used the machine"
    assert text.count("speed unstable") == text.count(line) == 1
    assert "unstable: on an idle machine the speed may be any other" in text


def test_a_model_without_measurements_says_why(printed, capsys):
    failed = replace(DIGITS[4], error="it crashed: no\nsuch op")
    printed([*DIGITS[:3], failed, replace(failed, name="onnx int8")])
    text = " ".join(capsys.readouterr().out.split())
    assert "tflite int8, onnx int8: could not be measured: it crashed: no such op" in text


def test_notes_on_the_records_reach_the_table_the_page_and_the_decision(printed, tmp_path, capsys):
    note = "7 of 20 evaluated records are in split 'train' too"
    printed(DIGITS[:3], record_notes=[note])
    assert f"note: {note}" in capsys.readouterr().out
    (decision,) = (file.parent for file in tmp_path.glob("*/decision.json"))
    assert json.loads((decision / "decision.json").read_text())["notes"] == [note]
    assert "7 of 20 evaluated records are in split" in (decision / "report.html").read_text()
