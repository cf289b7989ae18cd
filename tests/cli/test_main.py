"""The command: exit codes, help that teaches, output for machines, and a stop in the middle."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfopt.cli.main import main
from tfopt.component import components

TOY = "tests.toys:count"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.txt"
    file.write_text("one\ntwo\n")
    return file


def test_a_component_runs_from_the_command_line(data, tmp_path, capsys):
    words = [
        TOY,
        "--data",
        str(data),
        "--report",
        str(tmp_path / "out"),
        "--unit",
        "lines",
        "--loud",
        "--notes",
        "a",
        "b",
    ]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": {"uri": str(tmp_path / "out"), "metadata": {"count": 2}}}
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == {
        "count": 2.0,
        "loud": True,
        "notes": ["a", "b"],
    }
    assert main(words) == 1  # the output exists now
    error = capsys.readouterr().err
    assert [line.split(":")[0] for line in error.splitlines()] == ["tfopt", "received", "expected", "how to fix"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--no-such-option"],
        ["no_such_component"],
        [TOY],
        [TOY, "--data", "x", "--report", "y", "--scael", "1"],
        [TOY, "--data", "x", "--report", "y", "--scale", "11"],
        [TOY, "--data", "x", "--report", "y", "--unit", "words"],
        ["run"],
        ["compile", "retrain"],
        ["run", "retrain", "--engine", "cloud"],
    ],
)
def test_wrong_usage_ends_with_2(words):
    try:
        code = main(words)
    except SystemExit as stop:  # argparse's own way to end
        code = stop.code
    assert code == 2


def test_a_bad_value_is_answered_in_three_parts(capsys):
    with pytest.raises(SystemExit):
        main([TOY, "--data", "x", "--report", "y", "--scale", "11"])
    error = capsys.readouterr().err
    assert "received: count: scale=11.0" in error
    assert "expected: float from 0 to 10" in error
    assert "how to fix:" in error


def test_a_crash_has_no_traceback_unless_asked(data, tmp_path, capsys):
    words = ["tests.toys:fail", "--data", str(data), "--report", str(tmp_path / "out"), "--how", "crash"]
    assert main(words) == 1
    assert "RuntimeError: a bug" in (error := capsys.readouterr().err)
    assert "Traceback" not in error
    with pytest.raises(RuntimeError):
        main([*words, "--debug"])


def test_what_libraries_say_reaches_a_file_that_is_named_only_after_a_crash(data, tmp_path, capfd):
    words = ["tests.toys:fail", "--data", str(data), "--report", str(tmp_path / "out"), "--how"]
    assert main([*words, "crash"]) == 1
    named = re.search(r"the log messages of libraries are in (\S+)", capfd.readouterr().err)
    assert named
    assert Path(named[1]).is_file()
    Path(named[1]).unlink()
    assert main([*words, "refuse"]) == 1
    assert "messages of libraries" not in capfd.readouterr().err


def test_whoever_calls_it_from_python_gets_logging_back_as_it_was(data, tmp_path, monkeypatch):
    ours, root = logging.getLogger("tfopt"), logging.getLogger()
    monkeypatch.setattr(ours, "handlers", [])  # whatever ran before: with a handler there, nothing would be changed
    monkeypatch.setattr(ours, "propagate", True)
    before = (ours.handlers[:], ours.level, ours.propagate, root.handlers[:])
    assert main([TOY, "--data", str(data), "--report", str(tmp_path / "out")]) == 0
    assert (ours.handlers, ours.level, ours.propagate, root.handlers) == before


def test_list_and_describe_speak_to_people_and_machines(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in components())
    assert main(["list", "--json"]) == 0
    assert {found["name"] for found in json.loads(capsys.readouterr().out)} == set(components())
    for name, component in components().items():
        assert main(["describe", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(component.schema()))
    assert main(["describe", "export_tfltie"]) == 1
    assert "did you mean export_tflite" in capsys.readouterr().err


@pytest.mark.parametrize("name", components())
def test_help_teaches_every_port_and_parameter(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    component = components()[name]
    for word in [*component.inputs, *component.outputs, *component.parameters]:
        assert f"--{word.replace('_', '-')}" in text
    assert component.summary in text


def test_the_values_of_a_pipeline_are_listed(capsys):
    assert main(["run", "retrain", "--set", "help"]) == 0
    assert "--set data=PATH" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["data=x", "module=y", "lable=z"],
        ["data=x"],
        ["data"],
        ["data=/absent", "module=/absent"],
        [f"data={__file__}", f"module={__file__}", "goals=size threshold 9", "goals=latency threshold 9"],
    ],
)
def test_wrong_values_of_a_pipeline_end_with_1(words, tmp_path, capsys):
    assert main(["run", "retrain", "--root", str(tmp_path), *(part for word in words for part in ("--set", word))]) == 1
    assert "how to fix:" in capsys.readouterr().err


def test_ctrl_c_ends_with_130_and_leaves_nothing(data, tmp_path):
    module = tmp_path / "slow.py"
    module.write_text(
        "import time\nfrom tests.toys import *\n"
        "@component(image='tf')\ndef slow(data: Input[Files], report: Output[Report]) -> None:\n"
        "    '''Wait.\n\n    Args:\n        data: D.\n        report: R.\n    '''\n"
        "    print('started', flush=True)\n    time.sleep(60)\n"
    )
    words = [sys.executable, "-m", "tfopt.run", "slow:slow", "--data", data, "--report", tmp_path / "out"]
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    process = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "started\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert sorted(found.name for found in tmp_path.iterdir() if found.name != "__pycache__") == ["data.txt", "slow.py"]
