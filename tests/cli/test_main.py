"""Test the command: exit codes, help, JSON output, interruption."""

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

from tfopt.cli.commands import COMMANDS
from tfopt.cli.main import main, report_death
from tfopt.component import components
from tfopt.dag.tracing import load, pipelines
from tfopt.declaration.component import PURPOSES
from tfopt.processes.supervision import Death

TOY = "tests.toys:count"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.txt"
    file.write_text("one\ntwo\n")
    return file


def test_a_component_runs_from_the_command_line(data, tmp_path, capsys):
    words = [TOY, "--data", str(data), "--report", str(tmp_path / "out")]
    words += ["--unit", "lines", "--loud", "--notes", "a", "b"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": {"uri": str(tmp_path / "out"), "metadata": {"count": 2}}}
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == {
        "count": 2.0,
        "loud": True,
        "notes": ["a", "b"],
    }
    assert main(words) == 1  # the output exists
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
    except SystemExit as stop:  # raised by argparse
        code = stop.code
    assert code == 2


def test_a_wrong_value_is_an_error_in_three_parts(capsys):
    with pytest.raises(SystemExit):
        main([TOY, "--data", "x", "--report", "y", "--scale", "11"])
    error = capsys.readouterr().err
    assert "received: count: scale=11.0" in error
    assert "expected: float from 0 to 10" in error
    assert "how to fix:" in error


def test_errors_are_printed_as_json_too(tmp_path, monkeypatch, capsys):
    assert main(["history", str(tmp_path), "--last", "0", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "error": {"received": "--last 0", "expected": "a number from 1", "how_to_fix": "write for example --last 30"}
    }
    assert captured.err.startswith("tfopt: error\nreceived: --last 0\n")
    monkeypatch.setattr("tfopt.cli.destinations.history.read_all_runs", lambda *_: 1 / 0)
    assert main(["history", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"error": {"received": "ZeroDivisionError: division by zero"}}
    death = Death(-signal.SIGKILL, {"component": "train"}, "")
    assert report_death(death, ["train", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["expected"] == "enough memory"


def test_a_path_that_the_file_system_refuses_is_an_error_in_three_parts(data, tmp_path, capsys):
    assert main(["tests.toys:count", "--data", str(data), "--report", str(tmp_path / ("n" * 300))]) == 1
    error = capsys.readouterr().err
    assert "File name too long\nexpected: names of 255 bytes at most\nhow to fix: choose a shorter name" in error


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["plan", "retrain", "--engine", "process"],
        pytest.param(["describe", "train", "--json"], marks=pytest.mark.nightly),
    ],
)
def test_a_closed_pipe_ends_the_command_silently(words, tmp_path):
    (tmp_path / "model.py").write_text("def build_model(): ...\n")
    if words[0] == "plan":  # a table of rich
        words = [*words, "--set", f"data={__file__}", "--set", f"module={tmp_path / 'model.py'}", "--root", tmp_path]
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "tfopt.run", *words]
    ended = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_output_device_is_an_error_in_three_parts():
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-m", "tfopt.run", "list"], stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert b"No space left on device\nexpected: room for the outputs" in ended.stderr
    assert b"Traceback" not in ended.stderr and b"Exception ignored" not in ended.stderr


def test_a_crash_prints_a_traceback_only_with_debug(data, tmp_path, capsys):
    words = ["tests.toys:fail", "--data", str(data), "--report", str(tmp_path / "out"), "--how", "crash"]
    assert main(words) == 1
    assert "RuntimeError: a bug" in (error := capsys.readouterr().err)
    assert "Traceback" not in error
    with pytest.raises(RuntimeError):
        main([*words, "--debug"])


def test_library_logs_go_to_a_file_that_is_kept_only_after_a_crash(data, tmp_path, capfd):
    words = ["tests.toys:fail", "--data", str(data), "--report", str(tmp_path / "out"), "--how"]
    assert main([*words, "crash"]) == 1
    match = re.search(r"the log messages of libraries are in (\S+)", capfd.readouterr().err)
    assert match
    assert Path(match[1]).is_file()
    Path(match[1]).unlink()
    assert main([*words, "refuse"]) == 1
    assert "messages of libraries" not in capfd.readouterr().err


def test_a_call_from_python_restores_the_logging_settings(data, tmp_path, monkeypatch):
    log, root = logging.getLogger("tfopt"), logging.getLogger()
    monkeypatch.setattr(log, "handlers", [])  # main changes nothing if a handler is set
    monkeypatch.setattr(log, "propagate", True)
    before = (log.handlers[:], log.level, log.propagate, root.handlers[:])
    assert main([TOY, "--data", str(data), "--report", str(tmp_path / "out")]) == 0
    assert (log.handlers, log.level, log.propagate, root.handlers) == before


def test_help_lists_each_command_and_component_in_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        assert [line for line in lines if line.split()[:1] == [name]], name
    for name, component in components().items():
        assert [line for line in lines if line.split()[:1] == [name] and line.endswith(component.summary)], name


@pytest.mark.parametrize(
    ("words", "prog", "option", "fix"),
    [
        (["list", "--jsno"], "tfopt list", "--jsno", "did you mean --json?"),
        (["prune", "--model=a", "--prnued=b"], "tfopt prune", "--prnued", "did you mean --pruned"),
        (["prune", "--prunde", "b"], "tfopt prune", "--prunde", "did you mean --pruned"),  # before missing options
        (["run", "retrain", "--egnine=beam"], "tfopt run", "--egnine", "did you mean --engine?"),
        (["--verison"], "tfopt", "--verison", "did you mean --version?"),
        (["schedule", "--zzz"], "tfopt schedule", "--zzz", "known: "),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_one_instead_of_the_usage(words, prog, option, fix, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    first, received, expected, hint = capsys.readouterr().err.splitlines()
    assert (first, received) == (f"{prog}: error", f"received: {option}")
    assert expected == f"expected: an option of {prog}"
    assert hint.startswith(f"how to fix: {fix}")


def test_a_surplus_argument_is_reported_with_the_usage_of_the_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["list", "all"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: tfopt list ")
    assert error.endswith("tfopt list: error: unrecognized arguments: all\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_no_doubled_percent_sign(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "%%" not in capsys.readouterr().out


def test_list_and_describe_print_text_and_json(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in components())
    assert main(["list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    names = {kind: {entry["name"] for entry in entries if entry["kind"] == kind} for kind in ("component", "pipeline")}
    assert names == {"component": set(components()), "pipeline": set(pipelines())}
    for name, component in components().items():
        assert main(["describe", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(component.schema()))
    assert main(["describe", "export_tfltie"]) == 1
    assert "did you mean export_tflite" in capsys.readouterr().err
    assert main(["describe", "retrian"]) == 1
    assert "did you mean retrain" in capsys.readouterr().err


def test_list_shows_each_component_below_its_purpose_and_each_pipeline(capsys):
    assert main(["list"]) == 0
    groups = {}
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(":") or line.startswith("pipelines"):
            groups[title := line] = []
        elif line:
            groups[title].append(line.split()[0])
    by_purpose = {f"{text}:": [] for text in PURPOSES.values()}
    for name, component in components().items():
        by_purpose[f"{PURPOSES[component.purpose]}:"].append(name)
    assert groups == {"pipelines (tfopt run NAME):": pipelines(), **by_purpose}
    assert all(by_purpose.values())


@pytest.mark.parametrize("name", pipelines())
def test_describe_and_help_show_the_values_of_a_pipeline(name, capsys):
    dag = load(name)
    assert main(["describe", name]) == 0
    described = capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["run", name, "--help"])
    assert stop.value.code == 0
    help_text = capsys.readouterr().out
    for value in [*dag.sources, *dag.parameters]:
        for text in (described, help_text):
            assert re.search(rf"^  {value}\b", text, re.M), value
    assert "%%" not in described + help_text
    assert all(re.search(rf"^  {step} ", described, re.M) for step in dag.steps)
    assert main(["describe", name, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (set(facts["properties"]), set(facts["sources"])) == (set(dag.parameters), set(dag.sources))
    assert facts["steps"] == {step.id: step.component.name for step in dag.steps.values()}


def test_a_value_that_is_passed_as_an_option_is_an_error_with_the_right_form(capsys):
    with pytest.raises(SystemExit):
        main(["run", "retrain", "--min-change", "0.1"])
    assert "how to fix: pass it as --set min_change=…" in capsys.readouterr().err


@pytest.mark.parametrize("name", components())
def test_help_describes_every_input_output_and_parameter(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    component = components()[name]
    for word in [*component.inputs, *component.outputs, *component.parameters]:
        assert f"--{word.replace('_', '-')}" in text
    assert component.summary in text and "%%" not in text


def test_set_help_lists_the_values_of_a_pipeline(capsys):
    assert main(["run", "retrain", "--set", "help"]) == 0
    assert capsys.readouterr().out.startswith("sources (--set NAME=PATH):\n  data ")


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


def test_ctrl_c_ends_with_130_and_leaves_no_output(data, tmp_path):
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
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["data.txt", "slow.py"]


@pytest.mark.parametrize("words", [[":"], [":x"], ["x:"], ["::"], [".a:c"], ["a..b:c"], ["describe", ":"]])
def test_a_component_that_no_module_can_have_is_an_error_in_three_parts(words, capsys):
    assert main(words) == 1
    error = capsys.readouterr().err
    assert f"received: component '{words[-1]}'" in error and "how to fix: " in error
