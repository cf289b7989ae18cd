"""Test what programs of other projects read: OpenTelemetry's collector gets traces and metrics, promtool a file.

They are no Python packages. ``TFOPT_OTELCOL`` names a collector with the OTLP receiver and the debug exporter, and
``TFOPT_PROMTOOL`` Prometheus's promtool; docs/verified.md has the versions and how they were built.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.test_fleet import DAILY, run, write
from tests.telemetry.test_telemetry import adding, failing, no_settings  # noqa: F401  (a fixture)
from tfopt.cli.engines import run_recorded
from tfopt.cli.main import main
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError

pytestmark = pytest.mark.nightly
CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:PORT"}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [debug]}, metrics: {receivers: [otlp], exporters: [debug]}}
"""
NAMES = ["served", 'quotes "and\\ ünicode']


def program(variable: str) -> str:
    """Return the path of a program; skip the test without it."""
    if variable not in os.environ:
        pytest.skip(f"{variable} does not name the program, which no Python package has")
    return os.environ[variable]


@pytest.fixture
def fleet(tmp_path) -> list[str]:
    """Write the histories of two destinations; the last run of one is a regression."""
    return [str(write(tmp_path / name, [*DAILY[:5], run(6, accuracy=0.9)])) for name in NAMES]


@pytest.fixture
def collector(tmp_path, monkeypatch) -> Iterator[Path]:
    """Start a collector, to which the variables of OpenTelemetry point, and return the file with what it prints."""
    command = program("TFOPT_OTELCOL")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "collector.yaml").write_text(CONFIG.replace("PORT", str(port)))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    output = tmp_path / "collector.log"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [command, "--config", f"file:{tmp_path / 'collector.yaml'}"], stdout=file, stderr=subprocess.STDOUT
        )
        try:
            wait_for(output, "Everything is ready")
            yield output
        finally:
            process.terminate()
            process.wait(30)


def wait_for(output: Path, text: str) -> str:
    """Return the output once it has the text."""
    for _ in range(300):
        if text in (content := output.read_text(encoding="utf-8")):
            return content
        time.sleep(0.1)
    raise AssertionError(content)


def test_the_collector_takes_traces_and_metrics_of_runs_and_of_a_fleet(collector, fleet, tmp_path):
    (tmp_path / "data.txt").write_text("rows")
    run_recorded(trace(adding), {"data": str(tmp_path / "data.txt"), "start": 1}, tmp_path / "root", "process")
    with pytest.raises(ComponentError):
        run_recorded(trace(failing), {"data": str(tmp_path / "data.txt")}, tmp_path / "failing", "process")
    assert main(["fleet", *fleet]) == 0
    printed = wait_for(collector, "tfopt_metric_regressed")
    spans = re.findall(r"    Name +: (\S+)\n.*?    Status code +: (\w+)", printed, re.DOTALL)
    assert {("adding", "Ok"), ("count", "Ok"), ("add", "Ok"), ("failing", "Error")} <= set(spans)
    units = dict(re.findall(r"-> Name: (tfopt_\w+)\n.*\n     -> Unit: (\w*)\n", printed))
    assert (units["tfopt_run_duration_seconds"], units["tfopt_step_succeeded"]) == ("s", "")
    assert all(f"-> destination: Str({place})" in printed for place in fleet)
    assert not re.search(r"Dropped\w+Count: [1-9]|\terror\t|\twarn\t", printed)


def test_promtool_finds_no_fault_in_the_metrics_of_a_fleet(fleet, tmp_path):
    command = program("TFOPT_PROMTOOL")
    assert main(["fleet", *fleet, "--price", "0.4", "--metrics", str(tmp_path / "fleet.prom")]) == 0
    content = (tmp_path / "fleet.prom").read_bytes()
    checked = subprocess.run([command, "check", "metrics"], input=content, capture_output=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    without_help = content.replace(b"# HELP tfopt_problems", b"# HELP other", 1)
    assert subprocess.run([command, "check", "metrics"], input=without_help, capture_output=True).returncode == 3
