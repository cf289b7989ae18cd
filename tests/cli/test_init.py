"""Test `tfopt init`: the columns of a table, the files that it writes, and what it refuses."""

import datetime
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import yaml

import tfopt
from tfopt.artifacts import Evaluation, Examples, SavedModel
from tfopt.cli.main import main
from tfopt.cli.run_files.run_file import RunFile
from tfopt.component import find
from tfopt.components.prepare_examples import table_columns
from tfopt.components.prepare_examples.table_columns import Number, inspect_table
from tfopt.dag.tracing import load
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import stored_features
from tfopt.runtimes import load as load_model


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
    assert (columns.rows, columns.all_rows, columns.declared) == (600, True, [])
    assert columns.classes == 2 and not columns.has_rare_class
    assert set(columns.numbers) == {"age", "size"}
    assert columns.numbers["size"] == Number(74.875, 43.3012)
    assert columns.words == {"color": ["blue", "red"]}
    assert set(columns.left_out) == {"id", "same"}
    assert "600 different texts" in columns.left_out["id"]


def test_columns_with_names_that_no_input_can_have_are_renamed(tmp_path):
    renamed = [{f"{name} (1)" if name == "size" else name: value for name, value in one.items()} for one in ROWS]
    columns = inspect_table(table(tmp_path / "renamed.csv", renamed), "label")
    assert set(columns.numbers) == {"age", "size_1"} and columns.renamed == {"size_1": "size (1)"}
    assert columns.declared == []


def test_the_scale_is_that_of_the_numbers_that_are_present(tmp_path):
    values = [("" if n % 3 == 0 else "NA") if n % 4 == 0 else n % 10 + 100 for n in range(600)]
    rows = [row(n, age=value, low=value if value in ("", "NA") else -float(value)) for n, value in enumerate(values)]
    columns = inspect_table(table(tmp_path / "rows.csv", rows), "label")
    present = [value for value in values if isinstance(value, int)]
    assert columns.rows == 600
    assert columns.numbers["age"].mean == pytest.approx(np.mean(present), rel=1e-5)
    assert columns.numbers["age"].deviation == pytest.approx(np.std(present), rel=1e-5)
    assert (columns.numbers["age"].missing, columns.numbers["low"].missing) == (-1, -1000)
    assert columns.declared == ["age:int64 or -1", "low:float32 or -1000"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("count", lambda n: n + 7, "whole numbers without a gap"),
        ("customer_id", lambda n: n * 17 % 100_003, "the name of an id"),
        ("note", lambda n: f"text {n * n}", "different texts"),
        ("note", lambda n: f"text {n // 2}", "different texts"),  # each twice
        ("day", lambda n: f"{n % 12 + 1}/{n % 28 + 1}/2025", "write them as 2025-03-01"),
        ("day", lambda n: f"2025-0{n % 9 + 1}-11" if n % 3 else f"11.0{n % 9 + 1}.2025", "dates in several notations"),
        ("day", lambda n: f"{n % 28 + 1:02}/11/2025" if n % 3 else f"11/{n % 28 + 1:02}/2025", "in several notations"),
        ("paid", lambda n: f"{n * 7919:,}.50".replace(",", "'"), "write them as 1234.5"),
        ("share", lambda n: f"{n / 7:.3f} %", "write them as 1234.5"),
        ("nothing", lambda n: "NA", "no values"),
    ],
)
def test_ids_free_text_and_short_dates_are_left_out_with_a_reason(tmp_path, name, value, reason):
    columns = inspect_table(table(tmp_path / "rows.csv", [row(n, **{name: value(n)}) for n in range(600)]), "label")
    assert reason in columns.left_out[name]


def test_different_numbers_that_are_no_ids_stay(tmp_path):
    rows = [row(n, people=n * 17 % 100_003, shop_id=n % 9, paid=n * 3) for n in range(600)]
    assert {"people", "shop_id", "paid"} <= set(inspect_table(table(tmp_path / "rows.csv", rows), "label").numbers)


def test_a_few_dates_of_another_notation_do_not_end_the_inspection(tmp_path):
    days = [f"2025-0{n % 9 + 1}-11" if n % 300 else "11.03.2025" for n in range(600)]
    data = table(tmp_path / "rows.csv", [row(n, sold=day) for n, day in enumerate(days)])
    assert inspect_table(data, "label").dates["sold"].places["year"] == (0, 4)


@pytest.mark.parametrize(
    ("form", "year", "hour"),
    [
        ("%Y-%m-%d", (0, 4), None),
        ("%Y-%m-%dT%H:%M:%SZ", (0, 4), (11, 13)),
        ("%d.%m.%Y", (6, 10), None),
        pytest.param("%m/%d/%Y %H:%M", (6, 10), (11, 13), marks=pytest.mark.nightly),
        pytest.param("%d/%m/%Y", (6, 10), None, marks=pytest.mark.nightly),
    ],
)
def test_parts_of_dates_are_numbers_in_the_model(tmp_path, form, year, hour):
    start = datetime.datetime(1999, 11, 17, 5)
    times = [start + datetime.timedelta(hours=n * 41) for n in range(600)]
    rows = [row(n, sold="" if n == 3 else time.strftime(form)) for n, time in enumerate(times)]
    data = table(tmp_path / "rows.csv", rows)
    places = inspect_table(data, "label").dates["sold"].places
    assert (places["year"], places.get("hour")) == (year, hour)
    assert main(["init", str(tmp_path / "out"), "--data", data, "--label", "label"]) == 0
    names: dict = {}
    exec((tmp_path / "out" / "model.py").read_text(), names)
    text = keras.Input((1,), dtype="string")
    parts = keras.Model(text, names["date_parts"](text, *names["DATES"]["sold"]))
    outputs = [np.asarray(part) for part in parts(tf.constant([[one["sold"]] for one in rows]))]
    present = [n for n in range(600) if n != 3]
    assert outputs[0][present].std() == pytest.approx(1, abs=0.01) and outputs[0][present].mean() == pytest.approx(
        0, abs=0.01
    )
    assert (outputs[1][present, 0] * 31).round().tolist() == [times[n].day for n in present]
    assert outputs[2].argmax(1)[present].tolist() == [times[n].month for n in present]
    assert outputs[3].argmax(1)[present].tolist() == [(times[n].weekday() + 2) % 7 for n in present]  # 0 is Saturday
    assert [part[3].sum() for part in outputs[:4]] == [0, 0, 1, 0] and outputs[2][3, 0] == 1
    if hour:
        assert outputs[4].argmax(1)[present].tolist() == [times[n].hour for n in present]
    assert sum(part.shape[1] for part in outputs) == (46 if hour else 22)


@pytest.mark.parametrize(
    ("label", "column"),
    [
        pytest.param(label, column, marks=[] if row == place else [pytest.mark.nightly])
        for row, label in enumerate((lambda n: n % 3, lambda n: n / 7, lambda n: 2.0 ** (n % 13)))
        for place, column in enumerate(("age", "color", "day"))
    ],
)
def test_a_single_column_is_enough(tmp_path, column, label):
    values = {"age": lambda n: n % 7 / 2, "color": lambda n: "rgb"[n % 3], "day": lambda n: f"2025-01-{n % 28 + 1:02d}"}
    data = table(tmp_path / "rows.csv", [{column: values[column](n), "label": label(n)} for n in range(600)])
    assert main(["init", str(tmp_path / "out"), "--data", data, "--label", "label"]) == 0
    names: dict = {}
    exec((tmp_path / "out" / "model.py").read_text(), names)
    inputs = {column: keras.Input((1,), dtype="float32" if column == "age" else "string")}
    assert names["preprocess"](inputs)["row"].shape[1:] == names["build_model"]().input_shape[1:]


def test_rare_words_share_a_place_and_missing_ones_have_one(tmp_path):
    rows = [row(n, color="rare" if n < 5 else "" if n < 20 else ("red", "blue")[n % 2]) for n in range(600)]
    assert inspect_table(table(tmp_path / "rows.csv", rows), "label").words["color"] == ["", "blue", "red"]


def test_a_rare_class_gets_weights_and_a_skewed_number_its_logarithm(tmp_path):
    rows = [row(n, label=("no", "yes")[n % 20 == 0]) for n in range(600)]
    assert inspect_table(table(tmp_path / "rows.csv", rows), "label").has_rare_class
    labels = np.random.default_rng(0).normal(8, 1.2, 600)
    for values, logarithm in ((np.exp(labels), True), (labels, False), (-np.exp(labels), False)):
        data = table(tmp_path / "rows.csv", [row(n, label=value) for n, value in enumerate(values)])
        target = inspect_table(data, "label").target
        shown = np.log1p(values) if logarithm else values
        assert target.logarithm is logarithm
        expected = pytest.approx((shown.mean(), shown.std(), shown.min(), shown.max()), rel=1e-4)
        assert (target.mean, target.deviation, target.low, target.high) == expected


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
    assert columns[0].declared == ["age:int64 or -1"] and columns[0].left_out == {"many": "it has lists"}
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
    rows[3]["age"] = "NA"
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
    assert (values["label"], values["epochs"]) == ("label", 100) and "missing" not in values
    assert values["columns"] == ["age:int64 or -1"]
    assert values["rename"] == ["a b |c`=a_b_c"]
    assert values["goals"] == ["quality max_degradation 5%", "quality max_regression 1%"], (
        "of 180 records to measure on"
    )
    assert values["splits"] == ["train:6", "eval:1", "test:3"]
    names: dict = {}
    source = (tmp_path / "out/mine/model.py").read_text()
    exec(source, names)
    assert set(names["NUMBERS"]) == {"age", "size", "a_b_c"} and names["MISSING"] == {"age": -1}
    assert names["WORDS"] == {"color": ["blue", 'red "x"']}
    assert names["WIDTH"] == 3 + 1 + 3
    readme = (tmp_path / "out/mine/README.md").read_text()
    assert "all 600 rows" in readme and "| `id` | left out: " in readme and "renames `a b \\|c'` to `a_b_c`." in readme


def test_existing_files_are_not_replaced(tmp_path, capsys):
    (tmp_path / "model.py").write_text("mine")
    words = ["init", str(tmp_path), "--data", table(tmp_path / "rows.csv", ROWS), "--label", "label"]
    assert main(words) == 1
    assert f"received: {tmp_path / 'model.py'} exists" in capsys.readouterr().err
    assert (tmp_path / "model.py").read_text() == "mine" and not (tmp_path / "retrain.yaml").exists()


def test_what_is_no_table_is_refused(tmp_path, capsys):
    (tmp_path / "data.npz").write_bytes(b"x")
    only = table(tmp_path / "only.csv", [{"same": 1, "label": number % 2} for number in range(9)])
    damaged = table(tmp_path / "damaged.csv", [row(n, age="old" if n % 12 == 0 else n) for n in range(600)])
    for data, label, message in (
        (str(tmp_path / "data.npz"), "label", "received: "),
        (table(tmp_path / "rows.csv", ROWS), "lable", "how to fix: did you mean label?"),
        (str(tmp_path / "absent.csv"), "label", "received: "),
        (only, "label", "no column that a model can take: all of its values are the same"),
        (damaged, "label", "how to fix: fix those rows, and remove those without a label; elsewhere an empty cell"),
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


@pytest.mark.parametrize(
    ("record", "origin", "requirement"),
    [
        (None, "", f"tfopt[tf,onnx,openvino]=={tfopt.__version__}"),
        ({"url": "https://example.org/tfopt-1-py3-none-any.whl"}, "", "@ https://example.org/tfopt-1-py3-none-any.whl"),
        ({"url": "https://example.org/t.git", "vcs_info": {"commit_id": "ab1"}}, "", "@ git+https://example.org/t.git@ab1"),
        ({"url": "file://{clone}"}, "https://example.org/t.git", "@ git+https://example.org/t.git@{commit}"),
        ({"url": "file://{clone}"}, "", None),  # a clone whose origin has no such commit
    ],
)  # fmt: skip
def test_the_workflow_installs_from_where_tfopt_is_from(tmp_path, monkeypatch, capsys, record, origin, requirement):
    clone = tmp_path / "a clone"
    git = ["git", "-C", str(clone), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([*git, "remote", "add", "origin", origin or "https://example.org/other.git"], check=True)
    if origin:
        subprocess.run([*git, "update-ref", "refs/remotes/origin/main", commit], check=True)
    text = json.dumps(record).replace("{clone}", clone.as_posix().replace(" ", "%20")) if record else None
    monkeypatch.setattr(PathDistribution, "read_text", lambda self, name: text)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "out", "--data", table(tmp_path / "rows.csv", ROWS), "--label", "label"]) == 0
    (job,) = yaml.safe_load(Path("out/.github/workflows/quality.yml").read_text())["jobs"].values()
    (command,) = [step["run"] for step in job["steps"] if step.get("run", "").startswith("pip install ")]
    is_told = "needs the wheel of tfopt in wheels/" in capsys.readouterr().out
    assert is_told == ("pip wheel" in Path("out/README.md").read_text()) == (requirement is None)
    if requirement:
        assert command.endswith(f"{requirement.replace('{commit}', commit)}'")
    else:
        wheel = Path("out/wheels/tfopt-1.2.3-py3-none-any.whl")
        wheel.parent.mkdir()
        wheel.touch()
        done = subprocess.run(
            command.replace("pip install", "echo"), shell=True, cwd="out", capture_output=True, text=True
        )
        assert done.stdout.strip() == "wheels/tfopt-1.2.3-py3-none-any.whl[tf,onnx,openvino]"


def houses(file: Path, count: int = 800) -> str:
    """A table for a regression, with missing numbers and words, dates, an id, and names with spaces and umlauts."""
    random = np.random.default_rng(3)
    lines = ["id,class,größe in m2,built,sold_on,sale price"]
    for number in range(count):
        city, area, built = random.integers(5), random.uniform(25, 240), random.integers(1900, 2024)
        month = random.integers(1, 13)
        price = area * (60 + 10 * city) + (built - 1900) * 30 + 300 * month
        cells = [number, ["a", "b", "c", "d", ""][city], f"{area:.1f}", built, f"2025-{month:02d}-11", f"{price:.0f}"]
        for column, word in ((2, ""), (3, "NA")):
            cells[column] = word if random.random() < 0.05 else cells[column]
        lines.append(",".join(map(str, cells)))
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.fixture(scope="module")
def house_prices(tmp_path_factory) -> Path:
    """The written folder of a regression, its examples and the trained model."""
    folder = tmp_path_factory.mktemp("house prices")
    assert main(["init", str(folder / "out"), "--data", houses(folder / "h.csv"), "--label", "sale price"]) == 0
    values = yaml.safe_load((folder / "out/retrain.yaml").read_text())["values"]
    prepared = {name: values[name] for name in ("label", "columns", "rename", "missing", "splits")}
    find("prepare_examples")(data=folder / "h.csv", examples=folder / "examples", **prepared)
    module = folder / "out/model.py"
    find("train")(
        examples=folder / "examples", module=module, label="sale price", epochs=25, trained=folder / "trained"
    )
    return folder


def test_a_number_is_predicted_from_missing_numbers_words_and_dates(house_prices):
    manifest = json.loads((house_prices / "examples" / "examples.json").read_text())
    assert (manifest["read"], manifest["rejected"]["count"]) == (800, 0)
    model = load_model(SavedModel(str(house_prices / "trained")))
    assert set(model.inputs) == {"xclass", "gro_e_in_m2", "built", "sold_on"}
    files = Examples(str(house_prices / "examples")).split("test")
    stored = stored_features(files)
    batch = next(iter(read_batches(files, stored, batch_size=1000)))
    (predicted,) = model.run({name: batch[name] for name in model.inputs}).values()
    error, constant = (
        np.abs(batch["sale price"] - values).mean() for values in (predicted, np.median(batch["sale price"]))
    )
    assert error < 0.25 * constant
    one = {name: batch[name][:1] for name in model.inputs}
    absent, mean = (dict(one) for _ in range(2))
    absent["gro_e_in_m2"], mean["gro_e_in_m2"] = np.array([[-1]], np.float32), np.array([[1e6]], np.float32)
    differences = [abs(next(iter(model.run(row).values())) - predicted[0]) for row in (absent, mean)]
    assert differences[0] < differences[1]


@pytest.mark.nightly
def test_the_model_of_a_table_with_dates_is_exported(house_prices):
    examples = house_prices / "examples"
    exported = {}
    for component in ("export_tflite", "export_onnx", "export_openvino"):
        exported[component] = house_prices / component
        find(component)(model=house_prices / "trained", examples=examples, exported=exported[component])
    report = house_prices / "evaluation"
    candidates = list(exported.values())
    find("evaluate")(house_prices / "trained", candidates, examples, report, label="sale price")
    errors = [model.metrics["mean_absolute_error"].value for model in Evaluation(str(report)).load().models]
    assert len(errors) == 4 and errors == pytest.approx([errors[0]] * 4, rel=1e-4)


def test_missing_numbers_become_the_mean_and_a_place_that_says_so(tmp_path):
    rows = [row(n, age=("NA" if n % 4 == 0 else n % 10 + 100), label=np.exp(n % 17)) for n in range(600)]
    assert main(["init", str(tmp_path / "out"), "--data", table(tmp_path / "rows.csv", rows), "--label", "label"]) == 0
    names: dict = {}
    exec((tmp_path / "out" / "model.py").read_text(), names)
    assert names["MISSING"] == {"age": -1}
    types = {"age": "int64", "size": "float32", "color": "string"}
    inputs = {name: keras.Input((1,), dtype=dtype, name=name) for name, dtype in types.items()}
    preprocessing = keras.Model(inputs, names["preprocess"](inputs))
    mean, deviation = names["NUMBERS"]["age"]
    features = {"age": [[-1], [104]], "size": [[1.0], [1.0]], "color": [["red"], ["red"]]}
    prepared = preprocessing({name: tf.constant(features[name], types[name]) for name in types})["row"]
    assert np.allclose(np.asarray(prepared)[:, 0], [1, 0])
    assert np.allclose(np.asarray(prepared)[:, 1], [0, (104 - mean) / deviation], atol=1e-5)
    model = names["build_model"]()
    assert prepared.shape[1] == model.input_shape[1] == names["WIDTH"]
    assert model.loss == "mean_squared_logarithmic_error"
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    assert np.allclose(model(prepared), np.expm1(names["TARGET"][0]), rtol=1e-5)


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
    file.write_text(re.sub("epochs: .*", "epochs: 1", text))
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


@pytest.mark.nightly  # daily: the README's table, and exit codes
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
