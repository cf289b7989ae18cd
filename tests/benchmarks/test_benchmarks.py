"""Test the scripts of the published figures: they continue from stored results, and they run."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import peers
import stored_results
import verdicts

BENCHMARKS = Path(stored_results.__file__).parent

SHORT_RUNS = {  # arguments that make each script short; its figures are then meaningless
    "overhead.py": "--rounds 1",
    "startup.py": "--turns 1",
    "gates.py": "--needed --draws 3 --records 100 --candidates 1",
    "evaluate.py": "--examples 5000 --shards 1 --workers 1",
    "graph.py": "--models MobileNetV2 --side 32 --keras keras --latency --contenders optimized --seconds 0.5",
    "month.py": "--days 8 --engine process",
    "loops.py": "--slices 8 --rounds 3",
    "peers.py": '--models "two inputs" --threads 1 --batches 1 --seconds 0.5',
    "training.py": "--data mnist --seconds 0.5",
    "verdicts.py": "--trials 1 --seconds 0.2 --rounds 8",
    "engines.py": "--rows 2000 --examples 2000 --runners direct --workers 1",
    "tables.py": "--only wine --folds 2",
    "networks.py": "--networks MobileNetV3Small",
    "saturation.py": "--seconds 0.5 --largest 2 --clients 2",
}


def test_a_second_run_continues_from_the_stored_results(tmp_path):
    file, settings = tmp_path / "results.json", {"seconds": 2.0, "rounds": 8}
    result = stored_results.load_results(file, settings, "trials")
    assert result == {**settings, "trials": []}
    result["trials"].append("one")
    stored_results.save_results(file, result)
    assert stored_results.load_results(file, settings, "trials") == {**settings, "trials": ["one"]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_results_of_other_settings_are_refused_and_stay(tmp_path):
    file = tmp_path / "results.json"
    stored_results.save_results(file, {"rounds": 8, "trials": ["one"]})
    for others in ({"rounds": 9}, {"rounds": 8, "load": 2}):
        with pytest.raises(SystemExit, match=r"holds trials with .*not with .*name another file"):
            stored_results.load_results(file, others, "trials")
    assert json.loads(file.read_text())["trials"] == ["one"]


def test_a_missing_folder_is_reported_before_the_measurement(tmp_path):
    with pytest.raises(SystemExit, match=r"there is no folder .*missing"):
        stored_results.load_results(tmp_path / "missing" / "results.json", {}, "trials")


def test_without_a_file_no_results_are_stored():
    assert stored_results.load_results(None, {"rounds": 8}, "trials") == {"rounds": 8, "trials": []}
    stored_results.save_results(None, {})


def test_every_script_of_make_bench_is_tested():
    rule = re.search(r"^bench:.*\n((?:\t.*\n)+)", (BENCHMARKS.parent / "Makefile").read_text(), re.MULTILINE)
    assert rule
    assert set(re.findall(r"benchmarks/(\w+\.py)", rule[1])) <= SHORT_RUNS.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("script", SHORT_RUNS)
def test_a_short_run_of_the_script_succeeds(script, tmp_path):
    command = [sys.executable, str(BENCHMARKS / script), *shlex.split(SHORT_RUNS[script])]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.strip()


def test_a_loaded_comparison_holds_if_it_contains_the_quiet_ratio_or_is_unstable():
    def trial(load: int, verdict: str, low: float, high: float) -> dict:
        same = {"value": 1.0, "low": 0.99, "high": 1.01, "verdict": "within noise"}
        return {"load": load, "same": same, "slower": {"value": 0.95, "low": low, "high": high, "verdict": verdict}}

    trials = [
        trial(0, "slower", 0.94, 0.96),
        trial(4, "unstable", 0.5, 0.6),
        trial(4, "slower", 0.5, 0.6),
        trial(4, "slower", 0.9, 0.97),
    ]
    first, quiet, loaded = verdicts.describe_loaded(trials)
    assert first == "quiet ratios: same 1.000, slower 0.950"
    assert quiet.startswith("0 busy: 2 of 2 comparisons hold (0 unstable, 0 without a reference), 0 of 1 false")
    assert loaded.startswith("4 busy: 5 of 6 comparisons hold (1 unstable, 0 without")
    assert loaded.endswith("5 % found in 2 of 2 compared")
    assert "hold (1 unstable, 3 without a reference)" in list(verdicts.describe_loaded(trials[1:3]))[1]


def test_a_peer_without_a_file_of_equal_quality_counts_as_the_saved_model():
    milliseconds = {peers.PLAIN: 2.0, "nncf: int8": 1.0, "nncf: int4": 3.0, "tf.lite: int8": 2.5, "tflite int8": 0.5}
    measured = {name: {"latency": {"1": {"p50": value}}} for name, value in milliseconds.items()}
    measured["openvino: float32"] = {"latency": {}}  # did not run
    chosen = peers.choose_files(measured, "1")
    others = dict.fromkeys(peers.PEERS, peers.PLAIN)
    assert chosen == others | {"nncf": "nncf: int8", "tfopt": "tflite int8"}


def test_sizes_are_compared_among_files_of_equal_quality():
    def facts(size: int, missed: str | None = None) -> dict:
        return {"bytes": size, "quality": 0.9, "missed": missed}

    files = {
        peers.PLAIN: facts(900_000),
        "tflite int8": facts(110_000),
        "tflite dynamic": facts(90_000, "loses 2 points"),
    }
    files |= {"nncf: int8": facts(100_000), "tf.lite: int8": facts(80_000, "loses 2 points"), peers.MIX: facts(60_000)}
    files |= {"half the FLOPs, tflite int8": facts(50_000)}
    *_, row = peers.describe_sizes([{"model": "one", "files": files}])
    assert row == "| one | 900.0 kB | 110.0 kB | 100.0 kB | 1.10, missed | 50.0 kB | 60.0 kB | 1.83x | +0.00 |"


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"larger file": 1.0, "low": 0.01, "high": 0.3}, "by 0.1000 (0.0100 to 0.3000), beyond noise"),
        ({"larger file": 1.0, "low": -0.1, "high": 0.3}, "by 0.1000 (-0.1000 to 0.3000), within noise"),
        ({"larger file": 2.2}, "not compared: the peer's file is 2.2x as large"),
    ],
)
def test_losses_are_compared_at_equal_bits(more, verdict):
    row = {"file": "tflite int4", "peer": "nncf: int4", "loss": 0.4, "loss of peer": 0.3, **more}
    *_, line = peers.describe_bits([{"model": "one", "files": {peers.PLAIN: {"loss": 0.2}}, "bits": [row]}])
    assert line == f"| one | 0.2000 | tflite int4 | nncf: int4 | 0.4000 | 0.3000 | {verdict} |"
