"""Test what the Flink and the Spark runner need before a run: Java, the job server's jar, workers of a cluster."""

import contextlib
import http.server
import subprocess
import sys
import threading
import time
from pathlib import Path

import apache_beam
import pytest

from tfopt.data import beam_runner
from tfopt.data.portable_runners import RunnerArguments, check_arguments, failed_job
from tfopt.errors import ComponentError

SPARK = pytest.param("SparkRunner", "spark", marks=pytest.mark.nightly)
RUNNERS = pytest.mark.parametrize(("runner", "jar"), [("FlinkRunner", "flink"), SPARK])
CLUSTERS = (
    ["--runner=FlinkRunner", "--flink_master=host:8081"],
    ["--runner=SparkRunner", "--spark_master_url=spark://h:1"],
)

PYTHON = (sys.executable, "-X", "importtime", "-m", "tfopt.run")


@pytest.fixture
def java(tmp_path) -> str:
    """Return a program that stands for Java, and ends at once."""
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    return str(program)


@RUNNERS
def test_a_missing_java_is_named_with_the_package_to_install(runner, jar, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentError) as caught:
        check_arguments([f"--runner={runner}"])
    assert caught.value.received == f"--runner={runner}, and no program java"
    assert "apt-get install openjdk-17-jre-headless" in caught.value.fix


@RUNNERS
def test_a_missing_jar_is_named_with_the_file_to_download(runner, jar, java):
    with pytest.raises(ComponentError) as caught:
        check_arguments(
            [f"--runner={runner}", f"--{jar}_job_server_jar=/no/such.jar", f"--job_server_java_launcher={java}"]
        )
    assert "/no/such.jar: no such file" in caught.value.received
    assert f"beam-runners-{jar}" in caught.value.expected


@RUNNERS
def test_a_jar_that_cannot_be_downloaded_is_named_with_the_folder_that_beam_searches(runner, jar, java, tmp_path):
    with serving_nothing() as address:
        arguments = [f"--{jar}_job_server_jar={address}/job-server-1.jar", f"--jar_cache_dir={tmp_path / 'jars'}"]
        error = failure([f"--runner={runner}", f"--job_server_java_launcher={java}", *arguments])
    assert error.received == "job-server-1.jar of Maven Central (group org.apache.beam): HTTP Error 404: Not Found"
    assert str(tmp_path / "jars") in error.expected
    assert f"--beam-pipeline-arg=--{jar}_job_server_jar=PATH" in error.fix


@RUNNERS
def test_a_job_server_that_ends_at_once_is_an_error_with_the_command_to_run_it(runner, jar, java, tmp_path):
    server = tmp_path / "server.jar"
    server.touch()
    error = failure([f"--runner={runner}", f"--job_server_java_launcher={java}", f"--{jar}_job_server_jar={server}"])
    assert error.received == f"the job server of {runner} ended with code 7"
    assert f"{java} -jar {server}" in error.fix


@pytest.mark.parametrize(
    ("runner", "jar"),
    [("FlinkRunner", "flink"), ("SparkRunner", "spark")],
)
@pytest.mark.nightly  # daily: what a job server is refused for
def test_a_job_server_runs_the_pipeline_and_ends_with_it(runner, jar, tmp_path):
    """Run with Beam's own local job server in place of Java."""
    java, server, log = tmp_path / "java", tmp_path / "server.jar", tmp_path / "commands"
    server.touch()
    words = f"'{sys.executable}' -m apache_beam.runners.portability.local_job_service_main --port"
    java.write_text(
        f'#!/bin/sh\necho "$$ $*" >> "{log}"\nwhile [ "$1" != --job-port ]; do shift; done\nexec {words} "$2"\n'
    )
    java.chmod(0o755)
    arguments = [f"--{jar}_job_server_jar={server}", "--environment_type=LOOPBACK"]
    with (
        beam_runner.runner_arguments([f"--runner={runner}", f"--job_server_java_launcher={java}", *arguments]),
        beam_runner.pipeline() as pipeline,
    ):
        pipeline | apache_beam.Create([2, 3]) | apache_beam.Map(lambda number: (tmp_path / str(number)).touch())
    assert (tmp_path / "2").exists() and (tmp_path / "3").exists()
    (command,) = log.read_text().splitlines()
    assert f"-jar {server}" in command
    assert not Path("/proc", command.split()[0]).exists()


@pytest.mark.parametrize("arguments", CLUSTERS)
def test_a_cluster_without_workers_that_have_tfopt_is_refused(arguments, java):
    arguments = [*arguments, f"--job_server_java_launcher={java}"]
    with pytest.raises(ComponentError, match=r"(?s)no --environment_type.*has no tfopt.*docs/scale\.md"):
        check_arguments(arguments)
    check_arguments([*arguments, "--environment_type=EXTERNAL", "--environment_config=localhost:50000"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--runner=DirectRunner"],
        ["--runner=DataflowRunner"],
        ["--runner=FlinkRunner", "--job_endpoint=host:8099", "--environment_type=EXTERNAL"],
        ["--runner=SparkRunner", "--spark_submit_uber_jar", "--spark_rest_url=http://host:6066"],
        ["--direct_num_workers=2", "--unknown"],
    ],
)
def test_java_is_not_needed_where_no_job_server_starts(arguments, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    check_arguments(arguments)


def test_arguments_are_read_as_beam_reads_them():
    for words in (["--runner=FlinkRunner", "--flink_master=h:1"], ["--runner", "flinkrunner", "--flink_master", "h:1"]):
        options = RunnerArguments.parse(words)
        assert (options.runner, options.master, options.is_cluster) == ("FlinkRunner", "h:1", True)
    for local in ("[local]", "[auto]"):
        assert not RunnerArguments.parse(["--runner=FlinkRunner", f"--flink_master={local}"]).is_cluster
    assert not RunnerArguments.parse(["--runner=SparkRunner", "--spark_master_url=local[2]"]).is_cluster
    name = "apache_beam.runners.portability.spark_runner.SparkRunner"
    assert RunnerArguments.parse([f"--runner={name}"]).runner == "SparkRunner"


@pytest.mark.parametrize(
    "words",
    [
        ["prepare_examples", "--data", "rows.csv", "--examples", "out", "--label", "y"],
        pytest.param(["run", "retrain"], marks=pytest.mark.nightly),
    ],
)
def test_the_command_refuses_before_it_imports_beam(words, tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    values = [] if words[0] != "run" else ["--set", "data=rows.csv", "--set", "module=rows.csv"]
    start = time.monotonic()
    done = subprocess.run(
        [*PYTHON, *words, *values, "--beam-pipeline-arg=--runner=FlinkRunner"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "expected: Java 17" in done.stderr
    assert "apache_beam" not in done.stderr
    assert "tensorflow" not in done.stderr
    assert time.monotonic() - start < 30  # a second on an idle machine


def test_a_record_that_is_too_large_for_flink_is_an_error_with_the_setting():
    text = (
        "Pipeline a_1 failed in state FAILED: java.io.IOException: The record exceeds the maximum size of a sort buffer"
    )
    error = failed_job(RuntimeError(text), RunnerArguments.parse(["--runner=FlinkRunner"]))
    assert error.received == "the job failed on FlinkRunner: The record exceeds the maximum size of a sort buffer"
    assert "taskmanager.memory.managed.size" in error.fix
    lost = failed_job(RuntimeError("Pipeline a_1 failed in state FAILED: a.B: lost"), RunnerArguments.parse([]))
    assert "restart-strategy" in lost.fix


def failure(arguments) -> ComponentError:
    with (
        beam_runner.runner_arguments(arguments),
        pytest.raises(ComponentError) as caught,
        beam_runner.pipeline() as pipeline,
    ):
        pipeline | apache_beam.Create([1])
    return caught.value


@contextlib.contextmanager
def serving_nothing():
    """Yield the address of a server that has no files."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Nothing)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class Nothing(http.server.BaseHTTPRequestHandler):
    """Answers 404 to every request."""

    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        """Print nothing."""
