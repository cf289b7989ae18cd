"""The scripts behind the published figures: they go on from what they kept, and they still run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kept

BENCHMARKS = Path(kept.__file__).parent

LEAST = {  # what makes each of them short; its figures then mean nothing
    "overhead.py": "--rounds 1",
    "evaluate.py": "--examples 5000 --shards 1 --workers 1",
    "graph.py": "--models MobileNetV2 --side 32 --keras keras --latency --contenders optimized --seconds 0.5",
    "loops.py": "--slices 8 --rounds 3",
    "peers.py": "--models MobileNetV2 --side 32 --threads 1 --batches 1 --seconds 0.5",
    "training.py": "--data mnist --seconds 0.5",
    "verdicts.py": "--trials 1 --seconds 0.2 --rounds 8",
    "saturation.py": "--seconds 0.5 --largest 2 --clients 2",
}


def test_a_second_run_goes_on_from_what_the_first_kept(tmp_path):
    file, settings = tmp_path / "kept.json", {"seconds": 2.0, "rounds": 8}
    result = kept.begun(file, settings, "trials")
    assert result == {**settings, "trials": []}
    result["trials"].append("one")
    kept.keep(file, result)
    assert kept.begun(file, settings, "trials") == {**settings, "trials": ["one"]}
    assert [found.name for found in tmp_path.iterdir()] == ["kept.json"]


def test_figures_of_other_settings_are_not_gone_on_with_and_stay(tmp_path):
    file = tmp_path / "kept.json"
    kept.keep(file, {"rounds": 8, "trials": ["one"]})
    for others in ({"rounds": 9}, {"rounds": 8, "load": 2}):
        with pytest.raises(SystemExit, match=r"holds trials with .*not with .*name another file"):
            kept.begun(file, others, "trials")
    assert json.loads(file.read_text())["trials"] == ["one"]


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path):
    with pytest.raises(SystemExit, match=r"there is no folder .*missing"):
        kept.begun(tmp_path / "missing" / "kept.json", {}, "trials")


def test_without_a_file_nothing_is_kept():
    assert kept.begun(None, {"rounds": 8}, "trials") == {"rounds": 8, "trials": []}
    kept.keep(None, {})


def test_every_script_of_make_bench_is_tried():
    rule = re.search(r"^bench:.*\n((?:\t.*\n)+)", (BENCHMARKS.parent / "Makefile").read_text(), re.MULTILINE)
    assert rule
    assert set(re.findall(r"benchmarks/(\w+\.py)", rule[1])) <= LEAST.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("script", LEAST)
def test_it_runs_to_its_end(script, tmp_path):
    command = [sys.executable, str(BENCHMARKS / script), *LEAST[script].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
