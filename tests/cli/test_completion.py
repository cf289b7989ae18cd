"""Test the completion of command lines: in bash, and in fish and zsh where they are installed."""

import functools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfopt.cli.commands import COMMANDS
from tfopt.component import components
from tfopt.dag.tracing import load, pipelines

# With the command tfopt, which the scripts run, and with tests.toys, which it imports.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(Path(__file__).parents[2]),
}


def shell(name: str, script: str, folder: Path) -> list[str]:
    done = subprocess.run([name, "-c", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@functools.cache
def script_for_bash() -> str:
    """Return what ``eval "$(tfopt completion bash)"`` evaluates, printed by one process for all tests."""
    return "\n".join(shell("bash", "tfopt completion bash", Path.cwd()))


def complete(line: str, folder: Path) -> list[str]:
    """Return what bash offers at the end of a line."""
    script = (
        f"{script_for_bash()}\n"
        "COMP_WORDBREAKS=' \"><=;|&(:'; COMP_TYPE=9; "
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}; _python_argcomplete tfopt; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return [word.strip() for word in shell("bash", script, folder) if word.strip()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(
        "from tests.toys import count\nfrom tfopt import Input, Steps\nfrom tfopt.artifacts import Files\n"
        "from typing import Annotated\nfrom tfopt.trace import Inherited\n"
        "from tfopt.declaration.parameters import Location\n\nPlace = Annotated[str, Location()]\n\n"
        "def mine(steps: Steps, data: Input[Files], *, unit: Inherited, loud: Inherited, destination: Place) -> None:\n"
        '    """Count."""\n    steps(count, data=data, unit=unit, loud=loud, notes=[])\n'
    )
    (tmp_path / "mine.yaml").write_text("pipeline: mine.py\n")
    (tmp_path / "rows.csv").touch()
    (tmp_path / "runs" / "first").mkdir(parents=True)
    record = '{"pipeline": "mine", "state": "failed", "started": "2020", "host": "h", "process": 1, "version": "0"}'
    (tmp_path / "runs" / "first" / "run.json").write_text(record)
    return tmp_path


def test_commands_components_and_options_are_completed(folder):
    assert set(complete("tfopt ", folder)) == {*COMMANDS, *components()}
    assert complete("tfopt run", folder) == ["run", "runs"]
    assert {"--root", "--set", "--engine"} <= set(complete("tfopt run retrain --", folder))
    assert complete("tfopt run retrain --engine ", folder) == ["beam", "local", "process"]
    precisions = components()["export_tflite"].parameters["precision"].choices
    assert complete("tfopt export_tflite --precision ", folder) == list(precisions)


def test_pipelines_files_and_runs_are_completed(folder):
    assert set(complete("tfopt run ", folder)) == {*pipelines(), "mine.py", "runs/"}
    assert set(complete("tfopt describe retr", folder)) == {"retrain"}
    assert set(complete("tfopt plan -f ", folder)) == {"mine.yaml", "runs/"}
    assert complete("tfopt open ", folder) == ["first"]
    assert complete("tfopt diff first f", folder) == ["first"]


@pytest.mark.nightly
def test_values_of_the_pipeline_in_the_line_are_completed(folder):
    names = [*(dag := load("retrain")).sources, *dag.parameters]
    assert set(complete("tfopt run retrain --set ", folder)) == {f"{name}=" for name in names}
    assert set(complete("tfopt run -f mine.yaml --set ", folder)) == {"data=", "unit=", "loud=", "destination="}
    line = "tfopt run mine.py --set "
    assert set(complete(line, folder)) == {"data=", "unit=", "loud=", "destination="}
    assert complete(f"{line}unit=", folder) == ["bytes", "lines"]  # of what bash calls a word, after the =
    assert complete(f"{line}loud=", folder) == ["true", "false"]
    assert complete(f"{line}data=ro", folder) == ["rows.csv"]
    assert complete(f"{line}destination=ru", folder) == ["runs/"]
    assert complete(f"{line}nothing=", folder) == []


def test_a_file_that_cannot_be_read_does_not_prevent_the_completion_of_options(folder):
    (folder / "mine.yaml").write_text("pipeline: [")
    assert complete("tfopt run -f mine.yaml --eng", folder) == ["--engine"]
    assert complete("tfopt run absent.py --set un", folder) == []


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_with_descriptions(folder):
    script = 'tfopt completion fish | source; complete -C "tfopt run"'
    lines = [line.split("\t") for line in shell("fish", script, folder)]
    assert [words[0] for words in lines] == ["run", "runs"]
    assert lines[0][1].startswith("run a pipeline on this machine")


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(folder):
    pexpect = pytest.importorskip("pexpect")
    environment = {**ENVIRONMENT, "TERM": "dumb", "PS1": "ready> "}
    zsh = pexpect.spawn("zsh", ["-f", "-i"], encoding="utf8", timeout=30, cwd=str(folder), env=environment)
    for line in ("autoload -U compinit && compinit -u -D", 'eval "$(tfopt completion zsh)"'):
        zsh.expect("ready> ")
        zsh.sendline(line)
    zsh.expect("ready> ")
    zsh.send("tfopt run retrain --set goa\t")
    zsh.expect("goals=")
    zsh.close(force=True)
