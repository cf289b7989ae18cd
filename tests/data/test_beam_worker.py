"""Test the program that Flink and Spark start as a worker, with Beam's own runner and pool of workers."""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import apache_beam
import psutil
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.environments import ExternalEnvironment

from tests.process_tree import has_ended, wait_until

SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
STARTER = """
import subprocess, sys
worker = subprocess.Popen([sys.argv[1], "--id=1", "--control_endpoint=localhost:1"])
print(worker.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> str:
    """Write the program that an installation makes of the entry point."""
    module, function = SCRIPTS["tfopt-beam-worker"].split(":")
    file = tmp_path_factory.mktemp("bin") / "tfopt-beam-worker"
    # Started by a shell, as pip does it too where the path of Python has spaces, which a first line cannot have.
    code = f"import sys; from {module} import {function}; sys.exit({function}())"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    file.chmod(0o755)
    return str(file)


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_an_engine_runs_a_pipeline_in_it(program, tmp_path):
    address, server = BeamFnExternalWorkerPoolServicer.start(use_process=True, container_executable=program)
    try:
        with apache_beam.Pipeline(runner=FnApiRunner(default_environment=ExternalEnvironment(address))) as pipeline:
            numbers = pipeline | apache_beam.Create(range(10)) | apache_beam.CombineGlobally(sum)
            _ = numbers | apache_beam.Map(lambda total: (tmp_path / str(total)).write_text(str(os.getpid())))
    finally:
        server.stop(0)
    assert int((tmp_path / "45").read_text()) != os.getpid()


def test_it_ends_with_the_process_that_started_it(program):
    command = [sys.executable, "-c", STARTER, program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        worker = psutil.Process(int(starter.stdout.readline()))
        wait_until(lambda: worker.num_threads() > 1)  # it observes its parent
        starter.kill()
    wait_until(lambda: has_ended(worker), 20)


def test_it_refuses_to_run_without_a_name(program):
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--id" in done.stderr
