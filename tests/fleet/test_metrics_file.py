"""Test ``tfopt fleet --metrics``: the file is read by the parser of prometheus-client."""

import json

from prometheus_client.parser import text_string_to_metric_families

from tests.fleet.test_fleet import DAILY, run, write
from tfopt.cli.main import main


def metrics(text: str) -> dict[tuple, float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_have_the_state_of_each_destination(tmp_path, capsys):
    write(tmp_path / 'quotes "and\\ ünicode', [*DAILY[:5], run(6, accuracy=0.9)])
    write(tmp_path / "failing", [*DAILY, run(7, days_ago=0, blessed=False)])
    (tmp_path / "empty").mkdir()
    places = [str(tmp_path / name) for name in ('quotes "and\\ ünicode', "failing", "empty")]
    assert main(["fleet", *places, "--price", "0.9", "--metrics", str(tmp_path / "out/fleet.prom"), "--json"]) == 0
    states = {state["name"]: state for state in json.loads(capsys.readouterr().out)["destinations"]}
    samples = metrics((tmp_path / "out/fleet.prom").read_text(encoding="utf-8"))
    assert [samples["tfopt_problems", place] for place in places] == [
        len(states[place]["problems"]) for place in places
    ]
    assert [samples["tfopt_last_run_pushed", place] for place in places[:2]] == [1, 0]
    assert [samples["tfopt_served_version", place] for place in places[:2]] == [6, 6]
    assert samples["tfopt_metric", places[0], "accuracy"] == 0.9
    assert samples["tfopt_metric_regressed", places[0], "accuracy"] == 1
    assert samples["tfopt_metric_regressed", places[1], "accuracy"] == 0
    assert samples["tfopt_cost_per_million", places[0]] == states[places[0]]["cost"]["per_million"]
    assert samples["tfopt_fleet_timestamp_seconds",] - samples["tfopt_last_push_timestamp_seconds", places[1]] < 86400
    assert {key[0] for key in samples if places[2] in key} == {"tfopt_problems"}  # nothing else is known


def test_a_missing_package_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    assert main(["fleet", str(write(tmp_path / "a", DAILY)), "--metrics", str(tmp_path / "m.prom")]) == 1
    assert "pip install 'tfopt[metrics]'" in capsys.readouterr().err
