"""Test that Flink and Spark, as clusters of processes, give the results of the DirectRunner to the last byte."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beam_engines import packages
from tfopt.artifacts import Examples
from tfopt.components.evaluate.component import evaluate
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.data import beam_runner

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
ENGINES = pytest.mark.parametrize("engine", ["flink", "spark"])
PIPELINE = '''"""Prepare examples only."""
from tfopt.artifacts import Files
from tfopt.component import Input
from tfopt.components.prepare_examples.component import prepare_examples


def examples_only(steps, data: Input[Files]):
    """Prepare examples only."""
    steps(prepare_examples, data=data)
'''


@ENGINES
def test_examples_are_the_same_files(engine, request, table, tmp_path):
    arguments = request.getfixturevalue(engine).arguments
    prepare_examples(data=table, examples=tmp_path / "here")
    with beam_runner.runner_arguments(arguments):
        prepare_examples(data=table, examples=tmp_path / "there")
    here, there = Examples(tmp_path / "here"), Examples(tmp_path / "there")
    assert here.digest == there.digest
    assert (here.path / "examples.json").read_bytes() == (there.path / "examples.json").read_bytes()
    assert json.loads((there.path / "examples.json").read_text())["rejected"]["count"] == 5


@ENGINES
def test_metrics_are_the_same_to_the_last_bit(engine, request, evaluation, tmp_path):
    arguments = request.getfixturevalue(engine).arguments
    expected = evaluate(**evaluation, evaluation=tmp_path / "here")["evaluation"].read()
    with beam_runner.runner_arguments(arguments):
        assert evaluate(**evaluation, evaluation=tmp_path / "there")["evaluation"].read() == expected
    assert expected["counts"]["evaluated"] == 3000


@pytest.mark.parametrize("tfopt_engine", ["beam", "process"])
def test_a_run_uses_flink_without_a_cluster(tfopt_engine, table, tmp_path):
    (tmp_path / "examples_only.py").write_text(PIPELINE)
    server = f"--flink_job_server_jar={packages.job_server('flink')}"
    arguments = ["--runner=FlinkRunner", "--flink_version=1.19", server]
    run = ["run", "examples_only.py", "--engine", tfopt_engine, "--set", f"data={table}", "--json"]
    done = tfopt(tmp_path, *run, *(f"--beam-pipeline-arg={argument}" for argument in arguments))
    assert done.returncode == 0, done.stderr
    prepare_examples(data=table, examples=tmp_path / "here")
    written = json.loads(done.stdout)["prepare_examples"]["outputs"]["examples"]
    assert Examples(written).digest == Examples(tmp_path / "here").digest
    assert "beam-flink-job-server.jar" in (tmp_path / "runs" / "examples_only" / "run.log").read_text()


@ENGINES
def test_an_error_of_a_worker_is_in_the_three_parts(engine, request, table, tmp_path):
    arguments = request.getfixturevalue(engine).arguments
    (table.parent / "damaged").mkdir(exist_ok=True)
    (table.parent / "damaged" / "rows.csv").write_bytes(b"x,label\n1,a\n\xff\xfe,b\n")
    words = ["prepare_examples", "--data", str(table.parent / "damaged"), "--examples", "examples"]
    here = tfopt(tmp_path, *words)
    there = tfopt(tmp_path, *words, *(f"--beam-pipeline-arg={argument}" for argument in arguments))
    assert here.returncode == there.returncode == 1
    assert here.stderr == there.stderr
    assert "rows.csv line 3: not UTF-8" in there.stderr


def tfopt(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tfopt.run", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
