"""Test that the best of many is not judged as if it were the only one: recipes, backbones, and forms of an export."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.components.decisions import decide
from tests.reports import DIGITS, TRAINED
from tfopt.components.compare_backbones import short_training
from tfopt.components.select_model import provenance
from tfopt.components.tune_recipe.tune import _measure_finalists
from tfopt.errors import ComponentError
from tfopt.reports.decision_report import ModelDecision


def test_the_last_round_of_a_search_counts_all_measured_recipes(tmp_path):
    trials: list[Any] = [
        SimpleNamespace(measurement=number != 2, model=f"m{number}", reports=None) for number in range(6)
    ]
    calls = []
    measurer: Any = SimpleNamespace(measure=lambda models, folder, tried: calls.append((models, tried)))
    assert _measure_finalists(measurer, trials, trials[:2], tmp_path) == tmp_path
    assert calls == [(["m0", "m1"], 5)]


@pytest.mark.parametrize(("count", "tried"), [(1, 1), (2, 2), (3, 3), (4, 6), (9, 36)])
def test_backbones_are_compared_in_all_pairs(tmp_path, monkeypatch, count, tried):
    calls: list[dict[str, Any]] = []

    def evaluate(**arguments: Any) -> None:
        calls.append(arguments)
        raise ComponentError("no", "one", "stop")

    monkeypatch.setattr(short_training, "find", lambda name: evaluate)
    candidates: Any = [SimpleNamespace(name=str(number), trained=number) for number in range(count)]
    settings: Any = SimpleNamespace(label="label", task="auto", seed=0, epochs=1, records=1, batch_size=1)
    short_training._evaluate(candidates, settings, "examples", tmp_path)  # type: ignore[arg-type]
    assert calls[0]["tried"] == tried


def test_the_page_states_that_the_figure_of_the_first_form_that_met_a_limit_is_optimistic(monkeypatch):
    note = "the first of 3 forms that met max_degradation"
    facts = {"verified": "64 records", provenance.DEGRADATION_NOTE: note}
    step = SimpleNamespace(recovery=None)
    card = SimpleNamespace(lineage=[], parameters={}, step=step, component="export", facts=facts, data={}, versions={})
    model: Any = SimpleNamespace(card=card)
    decided: ModelDecision = SimpleNamespace(name="a", digest="0")  # type: ignore[assignment]
    assert provenance.lineage(model, decided)["verified"] == f"64 records; {note}"


def test_the_commands_repeat_how_many_models_were_tried(tmp_path):
    def commands(candidates: int) -> str:
        def edit(content: dict[str, Any]) -> None:
            content["interval"]["candidates"] = candidates

        folder = tmp_path / str(candidates)
        decide([TRAINED, DIGITS[4]], folder, edit=edit)
        return (folder / "decision" / "report.html").read_text()

    assert "--tried 7" in commands(7)
    assert "--tried" not in commands(1)
