"""Test what every engine of ``tfopt run`` promises: reuse, failures, log lines; and the choice of the engine."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toys
from tfopt.artifacts import Files
from tfopt.cli.engines import ENGINES, default_engine, load_engine
from tfopt.component import Input
from tfopt.dag.run_events import RunEvent, StepEnded, StepStarted, listening
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError

EVERY = pytest.mark.parametrize("engine", ENGINES)
# Daily, one of TFX's engines: both have the same launcher. Beam's one is slower: errors come from it, and turns below.
DAILY = pytest.mark.parametrize("engine", ["local", pytest.param("beam", marks=pytest.mark.nightly), "process"])
WITH_BEAM = pytest.mark.parametrize("engine", ["beam", pytest.param("local", marks=pytest.mark.nightly), "process"])
# A process in which TFX cannot be imported, and one in which Beam cannot be imported either.
WITHOUT_TFX = "import sys; sys.modules['tfx'] = None; from tfopt.cli.main import main; sys.exit(main())"
WITHOUT_BEAM = f"import sys; sys.modules['apache_beam'] = None; {WITHOUT_TFX}"

# Both engines of TFX start without TensorFlow; Keras and TFX's own components can be imported as usual afterwards.
BEFORE_TENSORFLOW = """
import sys
from tfopt.processes.startup import speed_up_imports
speed_up_imports()
from tfopt.cli.engines import load_engine
load_engine("beam"), load_engine("local")
assert not {"tensorflow", "tfx.components", "tensorflow_model_analysis"} & sys.modules.keys()
import keras
assert keras.backend.backend() == "tensorflow"
from tfx import components
assert components.Evaluator and components.Trainer
assert "tensorflow_model_analysis" in sys.modules
"""


def counting(steps, data: Input[Files], *, unit: str = "bytes", notes: list[str] = []) -> None:  # noqa: B006
    """Count and add."""
    counts = [steps(toys.count, data=data, unit=unit, notes=notes, loud=True) for _ in range(2)]
    steps(toys.add, reports=[count.outputs["report"] for count in counts], extra=counts[0].outputs["report"], start=100)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data with ä.txt"
    file.write_text("one\ntwo\n")
    return file


@DAILY
def test_steps_are_reused_until_a_parameter_or_a_file_changes(engine, data, tmp_path):
    dag, root = trace(counting), tmp_path / "root"

    def run(**values):
        return load_engine(engine)(dag, {"data": data, **values}, root)

    first = run(notes=["a", "b"])
    assert [outcome.reused for outcome in first.values()] == [False, False, False]
    total = json.loads((first["add"].outputs["total"].path / "report.json").read_text())
    assert total == {"count": 124.0, "parts": [8.0, 8.0, 8.0]}
    counted = json.loads((first["count"].outputs["report"].path / "report.json").read_text())
    assert counted == {"count": 8.0, "loud": True, "notes": ["a", "b"]}

    again = run(notes=["a", "b"])
    assert [outcome.reused for outcome in again.values()] == [True, True, True]
    assert again["add"].outputs["total"].uri == first["add"].outputs["total"].uri

    assert not any(outcome.reused for outcome in run(notes=["a", "b"], unit="lines").values())
    data.write_text("one\ntwo\nthree\n")  # another digest at the same path
    assert not any(outcome.reused for outcome in run(notes=["a", "b"]).values())


def count_and_note(steps, data: Input[Files], *, book: str) -> None:
    """Count, and add a note."""
    steps(toys.count, data=data)
    steps(toys.note, data=data, book=book)


@DAILY
def test_a_component_with_cache_never_runs_in_every_run(engine, data, tmp_path):
    book = tmp_path / "book"
    for lines, reused in ((1, False), (2, True), (1, True)):
        outcomes = load_engine(engine)(trace(count_and_note), {"data": data, "book": str(book)}, tmp_path / "root")
        assert [outcome.reused for outcome in outcomes.values()] == [reused, False]
        assert outcomes["note"].outputs["report"].read() == {"lines": lines}
        if lines == 2:
            book.unlink()  # like a user who removes a pushed version


def failing(steps, data: Input[Files], *, how: str = "refuse") -> None:
    """Count, then fail."""
    steps(toys.count, data=data)
    steps(toys.fail, data=data, how=how)


@WITH_BEAM
def test_a_failed_step_raises_its_own_error_and_is_not_reused(engine, data, tmp_path):
    dag, root, run = trace(failing), tmp_path / "root", load_engine(engine)
    for _ in range(2):
        events: list[RunEvent] = []
        with pytest.raises(ComponentError) as refusal, listening(events.append):
            run(dag, {"data": data}, root)
        assert refusal.value.fix == "give something else"
        ended = {event.step: event for event in events if isinstance(event, StepEnded)}
        assert "give something else" in str(ended["fail"].error)
        assert not ended["fail"].outcome
        assert not ("count" in ended and ended["count"].error)
    assert not list((root / "artifacts" / "fail").rglob("half"))
    with pytest.raises(Exception, match="a bug"):
        run(dag, {"data": data, "how": "crash"}, root)
    with pytest.raises(ComponentError, match="fail ended the process with 0"):
        run(dag, {"data": data, "how": "leave"}, root)


@EVERY
def test_a_missing_source_is_refused_before_the_first_step(engine, data, tmp_path):
    with pytest.raises(ComponentError, match="no such file"):
        load_engine(engine)(trace(counting), {"data": data.with_name("absent")}, tmp_path / "root")
    assert not (tmp_path / "root" / "metadata.sqlite").exists()
    assert not (tmp_path / "root" / "artifacts").exists()


def check_events(events: list[RunEvent]) -> None:
    """Check that the events have the inputs of each step, and that digests connect them with outputs."""
    outputs: dict[str, str | None] = {}
    starts: set[str] = set()
    for event in events:
        if isinstance(event, StepStarted):
            starts.add(event.step)
            inputs = [artifact.uri for listed in event.inputs.values() for artifact in listed]
            if event.step == "add":
                assert set(inputs) == outputs.keys()
            else:
                assert [Path(uri).name for uri in inputs] == ["data with ä.txt"]
        elif isinstance(event, StepEnded):
            assert event.outcome
            outputs |= {artifact.uri: event.outcome.digests[name] for name, artifact in event.outcome.outputs.items()}
            if event.step == "add":
                read = event.outcome.inputs["reports"]  # TFX has an artifact that is two inputs at one of them only
                assert read
                assert set(read) <= set(outputs.values())
    assert (len(starts), len(outputs), None in outputs.values()) == (3, 3, False)


@DAILY
def test_each_step_logs_its_number_and_its_time_or_that_it_is_reused(engine, data, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tfopt")
    for end in (r"done in \d+\.\d s", "reused"):
        caplog.clear()
        events: list[RunEvent] = []
        with listening(events.append):
            load_engine(engine)(trace(counting), {"data": data}, tmp_path / "root")
        check_events(events)
        lines = [record.getMessage() for record in caplog.records if record.name.startswith("tfopt.")]
        assert len(lines) == 6
        for step in ("[1/3] count", "[2/3] count_2", "[3/3] add"):  # on TFX's Beam runner the first two in any order
            started = lines.index(f"{step} …")
            assert re.fullmatch(f"{re.escape(step)}: {end}", lines[started + 1])
        assert lines[4] == "[3/3] add …"


def test_engines_can_take_turns_in_one_run_folder(data, tmp_path):
    for engine, is_reused in (("process", False), ("beam", False), ("process", True), ("beam", True)):
        outcomes = load_engine(engine)(trace(counting), {"data": data}, tmp_path / "root")
        assert [outcome.reused for outcome in outcomes.values()] == [is_reused] * 3
        assert outcomes["add"].outputs["total"].read()["count"] == 124


def tfopt(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process in which packages cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def dag_file(tmp_path: Path) -> Path:
    file = tmp_path / "one.py"
    file.write_text(
        "from tests.toys import count\nfrom tfopt import Input\nfrom tfopt.artifacts import Files\n\n"
        'def one(steps, data: Input[Files]) -> None:\n    """Count."""\n    steps(count, data=data)\n'
    )
    return file


def test_the_default_engine_is_that_of_tfx_where_tfx_is_installed():
    assert default_engine() == "beam"
    assert list(ENGINES) == ["beam", "local", "process"]


def test_without_tfx_a_dag_runs_in_this_process_by_default(data, dag_file, tmp_path):
    words = ["run", dag_file, "--set", f"data={data}", "--root", tmp_path / "root", "--json"]
    for reused in (False, True):
        done = tfopt(WITHOUT_BEAM, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["count"]["reused"] is reused
    assert "[1/1] count: reused" in done.stderr
    assert not (tmp_path / "root" / "metadata.sqlite").exists()
    help_text = " ".join(tfopt(WITHOUT_TFX, "run", "--help").stdout.split())
    assert "(default: process, because TFX is not installed)" in help_text


@pytest.mark.parametrize("engine", [pytest.param("beam", marks=pytest.mark.nightly), "local"])
def test_an_engine_of_tfx_is_refused_without_tfx(engine, data, dag_file, tmp_path):
    done = tfopt(WITHOUT_TFX, "run", dag_file, "--set", f"data={data}", "--engine", engine, "--root", tmp_path / "root")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "tfopt: error",
        f"received: --engine {engine}, and TFX is not installed",
        "expected: the package tfx",
        "how to fix: pass --engine process, which needs no TFX, or pip install 'tfopt[tfx]'",
    ]
    assert not (tmp_path / "root").exists()


def test_a_missing_package_is_an_error_in_three_parts(tmp_path):
    (tmp_path / "rows.csv").write_text("x,label\n1,0\n2,1\n")
    done = tfopt(WITHOUT_BEAM, "prepare_examples", "--data", tmp_path / "rows.csv", "--examples", tmp_path / "out")
    assert done.returncode == 1
    received, expected, fix = (line for line in done.stderr.splitlines() if re.match("received|expected|how to", line))
    assert "apache_beam" in received and expected == "expected: the package"
    assert fix == "how to fix: pip install 'tfopt[beam]'"
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_run_that_reuses_all_results_does_not_wait_for_tensorflow():
    subprocess.run([sys.executable, "-c", BEFORE_TENSORFLOW], check=True)
