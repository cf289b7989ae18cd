"""Test `tfopt init`: the columns of a table, the files that it writes, and what it refuses."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

import tfopt
from tfopt.cli.main import main
from tfopt.cli.run_files.run_file import RunFile
from tfopt.components.prepare_examples import table_columns
from tfopt.components.prepare_examples.table_columns import inspect_table
from tfopt.dag.tracing import load


def table(file: Path, rows: list[dict]) -> str:
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def row(number: int, **more) -> dict:
    facts = {"id": f"n{number}", "age": number % 7, "size": number / 4, "color": ("red", "blue")[number % 2]}
    return {**facts, "same": 7, "label": ("no", "yes")[number % 3 == 0], **more}


ROWS = [row(number) for number in range(600)]


def test_columns_are_numbers_words_or_left_out(tmp_path):
    columns = inspect_table(table(tmp_path / "rows.csv", ROWS), "label")
    assert (columns.rows, columns.all_rows, columns.incomplete) == (600, True, False)
    assert columns.classes == 2
    assert set(columns.numbers) == {"age", "size"}
    assert columns.numbers["size"] == (74.88, 43.3)
    assert columns.words == {"color": ["blue", "red"]}
    assert set(columns.left_out) == {"id", "same"}
    assert "600 different texts" in columns.left_out["id"]
    renamed = [{f"{name} (1)" if name == "size" else name: value for name, value in one.items()} for one in ROWS]
    columns = inspect_table(table(tmp_path / "renamed.csv", renamed), "label")
    assert "rename it" in columns.left_out["size (1)"] and set(columns.numbers) == {"age"}


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([number % 5 for number in range(600)], 5),
        ([number / 7 for number in range(600)], 0),
        (list(range(600)), 0),  # as many integers as rows
        ([number % 3 - 1 for number in range(600)], 0),  # classes are numbered from 0
        (["a", "b", "c"] * 200, 3),
    ],
)
def test_the_label_is_a_class_or_a_number(tmp_path, labels, classes):
    rows = [row(number, label=label) for number, label in enumerate(labels)]
    assert inspect_table(table(tmp_path / "rows.csv", rows), "label").classes == classes


def test_formats_with_types_missing_values_and_lists(tmp_path):
    rows = [{"age": n if n % 9 else None, "many": [1, 2], "word": "ab"[n % 2], "label": n % 2} for n in range(300)]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = [inspect_table(str(tmp_path / f"rows.{format}"), "label") for format in ("parquet", "jsonl")]
    assert columns[0] == columns[1]
    assert columns[0].incomplete and columns[0].left_out == {"many": "it has lists"}
    assert (set(columns[0].numbers), set(columns[0].words), columns[0].classes) == ({"age"}, {"word"}, 2)


def test_only_the_first_rows_and_the_most_frequent_words_count(tmp_path, monkeypatch):
    monkeypatch.setattr(table_columns, "ROWS", 100)
    monkeypatch.setattr(table_columns, "WORDS", 3)
    rows = [row(number, color="pqrst"[min(number % 7, 4)]) for number in range(600)]
    columns = inspect_table(table(tmp_path / "rows.csv", rows), "label")
    assert (columns.rows, columns.all_rows) == (100, False)
    assert len(columns.words["color"]) == 3 and "t" in columns.words["color"]


def test_the_folder_has_a_run_file_that_is_valid_and_a_module_that_is_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    colors = ('"red ""x"""', "blue")  # as a CSV quotes them
    rows = [row(number, color=colors[number % 2], **{"a b |c`": number % 3}) for number in range(600)]
    rows[3]["age"] = ""
    assert main(["init", "out/mine", "--data", table(Path("in/rows.csv"), rows), "--label", "label"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: tfopt run -f out/mine/retrain.yaml"
    assert {path.name for path in Path("out/mine").iterdir()} == {
        ".github",
        "README.md",
        "model.py",
        "own_dag.py",
        "retrain.schema.json",
        "retrain.yaml",
    }
    monkeypatch.chdir("/")
    values = RunFile([tmp_path / "out/mine/retrain.yaml"]).values(load("retrain"), [], lambda name, value: None)
    assert values["data"] == str(tmp_path / "in" / "rows.csv")
    assert (values["label"], values["missing"]) == ("label", "default")
    assert values["goals"] == ["quality max_degradation 5%", "quality max_regression 1%"], (
        "of 180 records to measure on"
    )
    assert values["splits"] == ["train:6", "eval:1", "test:3"]
    names: dict = {}
    source = (tmp_path / "out/mine/model.py").read_text()
    exec(source.replace("from keras import layers", "").replace("import keras", ""), names)
    assert set(names["NUMBERS"]) == {"age", "size"}
    assert names["WORDS"] == {"color": ["blue", 'red "x"']}
    assert names["WIDTH"] == 2 + 3
    readme = (tmp_path / "out/mine/README.md").read_text()
    assert (
        "all 600 rows" in readme and "| `id` | left out: " in readme and "| `a b \\|c'` | left out: its name" in readme
    )


def test_existing_files_are_not_replaced(tmp_path, capsys):
    (tmp_path / "model.py").write_text("mine")
    words = ["init", str(tmp_path), "--data", table(tmp_path / "rows.csv", ROWS), "--label", "label"]
    assert main(words) == 1
    assert f"received: {tmp_path / 'model.py'} exists" in capsys.readouterr().err
    assert (tmp_path / "model.py").read_text() == "mine" and not (tmp_path / "retrain.yaml").exists()


def test_what_is_no_table_is_refused(tmp_path, capsys):
    (tmp_path / "data.npz").write_bytes(b"x")
    only = table(tmp_path / "only.csv", [{"same": 1, "label": number % 2} for number in range(9)])
    spaces = table(tmp_path / "spaces.csv", [{"mean size": number, "label": number % 2} for number in range(9)])
    for data, label, message in (
        (str(tmp_path / "data.npz"), "label", "received: "),
        (table(tmp_path / "rows.csv", ROWS), "lable", "how to fix: did you mean label?"),
        (str(tmp_path / "absent.csv"), "label", "received: "),
        (only, "label", "no column that a model can take: all of its values are the same"),
        (spaces, "label", "how to fix: rename the columns in the data, such as 'mean size' to 'mean_size'"),
    ):
        assert main(["init", str(tmp_path / "out"), "--data", data, "--label", label]) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_the_readme_names_each_file_and_the_workflow_its_place_in_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = table(tmp_path / "rows.csv", ROWS)
    for folder, directory, prefix in (("alone", ".", ""), ("repository/models/price", "models/price", "models/price/")):
        if folder != "alone":
            Path("repository/.git").mkdir(parents=True)
        assert main(["init", folder, "--data", data, "--label", "label"]) == 0
        readme = Path(folder, "README.md").read_text()
        names = {file.relative_to(folder).as_posix() for file in Path(folder).rglob("*") if file.is_file()}
        assert names == set(re.findall(r"^\| `([\w./]+)` \|", readme.partition("## ")[0], re.M))
        assert ("move `.github` there" in readme) == (folder != "alone")
        (job,) = yaml.safe_load(Path(folder, ".github/workflows/quality.yml").read_text())["jobs"].values()
        assert job["defaults"]["run"]["working-directory"] == directory
        paths = {step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {})}
        assert paths == {f"{prefix}pushed", f"{prefix}run/artifacts/select_model/decision"}
        assert f"=={tfopt.__version__}'" in job["steps"][2]["run"]


def run_in(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell would, with the engine of this process and without a display."""
    engine = "" if "--engine" in command or not command.startswith("tfopt run") else " --engine process"
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command + engine, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A written folder whose model is trained and measured for a moment, on labels that are wrong in a fifth."""
    rows = [row(number, label=("no", "yes")[(number % 7 > 2) != (number % 5 == 0)]) for number in range(600)]
    folder = tmp_path / "mine"
    assert main(["init", str(folder), "--data", table(tmp_path / "rows.csv", rows), "--label", "label"]) == 0
    file = folder / "retrain.yaml"
    text = file.read_text().replace("seconds: 4", "seconds: 0.1")
    file.write_text(text.replace("values:\n", "values:\n  epochs: 1\n"))
    return folder


def commands_of(folder: Path) -> list[str]:
    return re.findall(r"^tfopt .*", (folder / "README.md").read_text(), re.M)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_the_commands_of_the_readme_and_the_workflow_run(small):
    (job,) = yaml.safe_load((small / ".github/workflows/quality.yml").read_text())["jobs"].values()
    in_workflow = [step["run"] for step in job["steps"] if step.get("run", "").startswith("tfopt ")]
    assert in_workflow and set(in_workflow) < set(commands_of(small))
    outputs = {}
    for command in commands_of(small):
        done = run_in(small, command)
        assert done.returncode == 0, (command, done.stderr[-3000:])
        outputs[command] = done.stdout
    assert Path(outputs["tfopt open run"].strip()).is_file()
    assert "pushed: " in outputs[in_workflow[0]]


def test_the_written_dag_runs_and_a_worse_model_is_refused_with_exit_code_3(small, monkeypatch, capsys):
    dag = small / "own_dag.py"
    for value, less in (
        ('("float32", "int8")', '("float32",)'),
        ("seconds=seconds", 'seconds=seconds, batch_sizes=["1"]'),
    ):
        assert value in dag.read_text()
        dag.write_text(dag.read_text().replace(value, less))
    (command,) = (command for command in commands_of(small) if command.startswith("tfopt run own_dag.py "))
    words = [*shlex.split(command)[1:], "--engine", "process"]
    monkeypatch.chdir(small)
    assert main([*words, "--require-blessing"]) == 0
    (blessed,) = (small / "pushed" / "history").glob("*.json")
    record = json.loads(blessed.read_text())
    for model in ("winner", "parent"):
        assert 0.5 < record[model]["metrics"]["accuracy"] < 0.9
        record[model]["metrics"]["accuracy"] = 0.99
    for number in range(3):  # as if three runs had been blessed, with better models
        blessed.with_stem(f"earlier{number}").write_text(json.dumps(record))
    blessed.unlink()
    run_file = small / "retrain.yaml"
    goals = re.findall(r"max_degradation: \d+%", run_file.read_text())
    run_file.write_text(
        run_file.read_text().replace(goals[0], "max_degradation: 20%")
    )  # a new decision, on equal models
    capsys.readouterr()
    assert main([*words, "--require-blessing"]) == 3
    assert "not blessed: it will not be pushed" in capsys.readouterr().out
    assert main(words) == 0
    done = run_in(small, f"{command} --require-blessing")  # in a process, which reuses the results
    assert done.returncode == 3, done.stderr[-3000:]
    assert "not blessed: it will not be pushed" in done.stdout
