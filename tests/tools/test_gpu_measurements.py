"""Test the script for measurements on a GPU without one: its commands, time limits and repetition, and its tables.

Programs on the path record the words that the script calls them with; the parsers of tfopt then read these.
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from tfopt.cli.arguments import parse_assignments
from tfopt.cli.main import build_parser
from tfopt.dag.tracing import load
from tfopt.reports.benchmark_report import BenchmarkReport, Latency, ModelBenchmark, SpeedupEstimate

TOOLS = Path(__file__).parents[2] / "tools" / "gpu"
RECORDER = """#!/bin/sh
''''exec "{python}" -IS "$0" "$@" # '''
# The shell runs the line above, which is a text in Python: a first line "#!" cannot have a path with spaces.
import json, os, sys
with open({log!r}, "a") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
sys.exit(any(word.endswith({fails!r}) for word in sys.argv[1:]))
"""
TIMEOUT = """#!/bin/bash
echo "[\\"timeout\\", \\"$3\\"]" >> {log!r}
exec "${{@:4}}"
"""


def record(folder: Path, fails: str = "nothing", **variables: str) -> tuple[list[list[str]], list[str]]:
    """Run the script, and return the words of its commands and the lines of its results; the named program fails."""
    programs, log = folder / "programs", folder / "log"
    programs.mkdir(exist_ok=True)
    for name in ("tfopt", "python", "nvidia-smi"):
        (programs / name).write_text(RECORDER.format(python=sys.executable, log=str(log), fails=fails))
        (programs / name).chmod(0o755)
    (programs / "timeout").write_text(TIMEOUT.format(log=str(log)))
    (programs / "timeout").chmod(0o755)
    log.write_text("")
    variables |= {"PATH": f"{programs}:{os.environ['PATH']}"}
    script = ["bash", str(TOOLS / "measure.sh"), str(folder / "results of a GPU")]
    subprocess.run(script, env=os.environ | variables, check=False, capture_output=True, timeout=60)
    results = folder / "results of a GPU" / "results.txt"
    lines = results.read_text().splitlines() if results.is_file() else []
    return [json.loads(line) for line in log.read_text().splitlines()], lines


def test_every_command_is_one_that_tfopt_and_the_tools_accept(tmp_path):
    commands, results = record(tmp_path)
    assert all("exit code 0" in line for line in results) and len(results) > 12
    called = defaultdict(list)
    for program, *words in commands:
        called[program].append(words)
    for words in called["tfopt"]:
        arguments = build_parser(words).parse_args(words)
        if words[0] == "run":
            dag = load(words[1])
            values = parse_assignments(dag, arguments.set)
            assert {"model", "examples", "destination"} <= values.keys()
            dag.values(values | {source: f"s3://bucket/{source}" for source in ("model", "examples")})
    assert [words[0] for words in called["tfopt"]].count("run") == 4
    for words in called["python"]:
        tool = Path(words[0])
        if tool.parent == TOOLS:
            source = tool.read_text()
            assert not [word for word in words if word.startswith("--") and f'"{word}"' not in source], words
    assert {Path(words[0]).name for words in called["python"]} == {
        *("check.py", "waves.py", "time_steps.py", "time_models.py", "networks.py", "-m"),
    }


def test_the_limits_of_each_part_are_thirteen_minutes_together():
    text = (TOOLS / "measure.sh").read_text()
    start, *parts = re.split(r"^if part \d; then$", text, flags=re.MULTILINE)
    limits = [
        sum(
            int(limit)
            for limit in re.findall(r"^ *(?:\S+=\S+ )?(?:step|optimize|times) \S+ (\d+) ", part, re.MULTILINE)
        )
        for part in (start, *(part.replace('optimize "$name"', "optimize three") for part in parts))
    ]
    networks = 2 * int(re.findall(r'optimize "\$name" (\d+)', text)[0])  # three of them, and one was counted
    assert len(limits) == 4 and limits[0] > 0
    for part, more in zip(limits[1:], (0, networks, 0), strict=True):
        assert 600 < limits[0] + part + more <= 780


def test_a_step_gets_the_time_that_earlier_ones_left(tmp_path):
    commands, _ = record(tmp_path, PART="1")
    allowed = [int(words[1]) for words in commands if words[0] == "timeout"]
    assert allowed == sorted(allowed) and allowed[-1] > 700


def test_a_repeated_command_goes_on_after_the_last_step_that_succeeded(tmp_path):
    _, results = record(tmp_path, fails="time_steps.py", PART="1")
    assert next(line for line in results if "exit code 1" in line).startswith("steps_free")
    again, lines = record(tmp_path, PART="1")
    assert len(lines) == len(results) + 1
    assert {Path(words[1]).name for words in again if words[0] == "python"} == {"waves.py", "time_steps.py"}
    assert not [words for words in again if words[0] == "tfopt"]


def test_without_a_gpu_only_a_rehearsal_goes_on(tmp_path):
    commands, results = record(tmp_path, fails="check.py")
    assert len(results) == 1 and not [words for words in commands if words[0] == "tfopt"]
    (tmp_path / "again").mkdir()
    commands, results = record(tmp_path / "again", fails="check.py", REHEARSE="1")
    assert len(results) > 8 and [words for words in commands if words[:2] == ["tfopt", "train"]]


def test_results_become_tables(tmp_path):
    (tmp_path / "results.txt").write_text("check: exit code 0, 21 s\noptimize_resnet: exit code 0, 301 s\n")
    (tmp_path / "gpu.txt").write_text("NVIDIA H200, 570.86.15, 143771 MiB\n")
    (tmp_path / "check.log").write_text("I0000 a library\ntfopt 0.2.0, TensorFlow 2.21.0, CUDA 12.5\n")
    (tmp_path / "steps_free.log").write_text(
        "I0000 a line of a library: 3 ms\nmixed_float16 jit_compile=on: 12.30 ms (12.10 to 12.90), 5203 per s\n"
    )
    latency = Latency(p50=1.5, p90=1.6, p99=1.7, mean=1.5, samples=9, disturbed=0.0, stable=True)
    made = {"digest": "d", "format": "tensorrt", "environment": {}, "sizes": {}, "saturation": None, "notes": []}
    made |= dict.fromkeys(("import_seconds", "load_seconds", "first_call_seconds"), None)
    made |= dict.fromkeys(("runtime_memory_bytes", "peak_memory_bytes"), None)
    made["throughput"] = {}
    faster = {"1": SpeedupEstimate(10.7, 9.55, 12.6, "faster")}
    models = [
        ModelBenchmark(name="trained", error=None, latency={"1": latency}, speedup={}, **made),
        ModelBenchmark(name="tensorrt fp16", error=None, latency={"1": latency}, speedup=faster, **made),
        ModelBenchmark(
            name="tensorrt fp8", error="received: no float8\nexpected: more", latency={}, speedup={}, **made
        ),
    ]
    report = BenchmarkReport({}, "trained", [1, 32], 1, 1.0, 8, 0, {}, {}, models, split=None)
    folder = tmp_path / "run-resnet" / "artifacts" / "benchmark" / "benchmark" / "1"
    folder.mkdir(parents=True)
    (folder / "benchmark.json").write_text(json.dumps({"schema_version": 1, **asdict(report)}))
    (tmp_path / "run-transformer").mkdir()
    command = [sys.executable, str(TOOLS / "tables.py"), str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for line in (
        "    tfopt 0.2.0, TensorFlow 2.21.0, CUDA 12.5",
        *("    NVIDIA H200, 570.86.15, 143771 MiB", "| optimize_resnet | exit code 0, 301 s |"),
        *("| trained | 1.50 ms | not measured |", "`run-transformer` has no measurement"),
        "| tensorrt fp16 | 1.50 ms, 10.70x (9.55 to 12.60), faster | not measured |",
        "| tensorrt fp8 | failed: no float8 |  |",
        "| mixed_float16 jit_compile=on | 12.30 ms (12.10 to 12.90), 5203 per s |",
    ):
        assert line in printed
    assert not [line for line in printed if "library" in line]
