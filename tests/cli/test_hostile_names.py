"""Test that names from inputs neither control the terminal, nor look like messages, nor run in reports or YAML."""

import io
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from tests import toys
from tests.reports import DIGITS, make_models, write_reports
from tfopt.artifacts import Files
from tfopt.cli.main import main
from tfopt.cli.terminal.log_redirect import LogFormatter
from tfopt.cli.terminal.summary_table import print_summary
from tfopt.component import Input
from tfopt.components.select_model.component import select_model
from tfopt.dag.tracing import Steps, trace
from tfopt.kfp.compiler import compile_pipeline

# colors, the title of the window, C1 control sequences, another direction of text, HTML, Jinja, YAML, other messages
HOSTILE = "a\x1b[31m\x1b]0;b\x07\x9b2J\u202ec<script>alert(1)</script>'\"{{7*7}}: - &d\r\nexpected: e\nhow to fix: f"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def table(folder: Path, names: str) -> Path:
    folder.mkdir()
    rows = [f'{number},{number % 7},"{HOSTILE.replace(chr(34), "")}{number % 2}"' for number in range(100)]
    (folder / "rows.csv").write_text("\n".join([names, *rows]))
    return folder


def test_a_command_works_in_a_folder_and_on_classes_with_such_names(tmp_path, capsys):
    folder = table(tmp_path / re.sub(r"[/\[*]", "_", HOSTILE), "x,y,label")
    assert main(["prepare_examples", "--data", str(folder), "--examples", str(folder / "examples")]) == 0
    inspected = ["evaluate", "--baseline", str(folder), "--examples", str(folder / "examples")]
    assert main([*inspected, "--candidates", str(folder), "--evaluation", str(folder / "evaluation")]) == 1
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "\\x1b_31m" in text and not CONTROLS.search(text)
    assert len(re.findall("^(?:received|expected|how to fix): ", text, re.M)) == 3


def test_an_error_about_such_a_column_has_three_parts(tmp_path, capsys):
    folder = table(tmp_path / "data", "x,y,label")
    (folder / "other.csv").write_text(f'"{HOSTILE.replace(chr(34), "")}",y,label\n1,2,3\n')
    assert main(["prepare_examples", "--data", str(folder), "--examples", str(tmp_path / "examples")]) == 1
    text = capsys.readouterr().err
    assert "<script>" in text and not CONTROLS.search(text)
    assert len(re.findall("^(?:received|expected|how to fix): ", text, re.M)) == 3


def test_a_usage_error_shows_an_unknown_argument(capsys):
    with pytest.raises(SystemExit):
        main(["compile", "retrain", "--output", "x.yaml", HOSTILE])
    text = capsys.readouterr().err
    assert not CONTROLS.search(text) and not re.search("^how to fix", text, re.M)


def test_a_name_in_the_log_stays_in_its_message():
    record = logging.LogRecord("tfopt", logging.INFO, "file", 1, "%s: done", (HOSTILE,), None)
    text = LogFormatter("%(levelname)s %(message)s").format(record)
    assert not CONTROLS.search(text)
    assert [line.startswith("    ") for line in text.splitlines()] == [False, True, True]


def test_the_table_and_the_report_show_names_of_models(tmp_path):
    rows = [DIGITS[0], replace(DIGITS[1], name=re.sub(r"[/\[*]", "_", HOSTILE)), DIGITS[4]]
    models = make_models(rows, tmp_path / "models")
    evaluation, benchmark = write_reports(rows, models, tmp_path)
    evaluation.write(evaluation.read() | {"classes": [HOSTILE, *map(str, range(9))]})
    outputs = select_model(models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in "sdb"))
    console = Console(file=io.StringIO(), width=200)
    print_summary(outputs["decision"], evaluation, benchmark, console)
    page = (tmp_path / "d" / "report.html").read_text()
    for text in (console.file.getvalue(), page):
        assert "\\x1b_31m" in text
        assert not CONTROLS.search(text)
        assert "49" not in re.findall(r"\"(\d+): - ", text)  # Jinja does not read names
    assert "<script" not in page and "&lt;script&gt;" in page


def test_a_compiled_pipeline_contains_such_a_value_as_it_is(tmp_path):
    def hostile(steps: Steps, data: Input[Files], *, words: str = HOSTILE) -> None:
        """Count."""
        steps(toys.count, data=data)

    compile_pipeline(trace(hostile), tmp_path / "p.yaml")
    text = (tmp_path / "p.yaml").read_text()
    parameter = next(yaml.safe_load_all(text))["root"]["inputDefinitions"]["parameters"]["words"]
    assert parameter["defaultValue"] == HOSTILE
    assert not CONTROLS.search(text) and not re.search("^how to fix", text, re.M)
