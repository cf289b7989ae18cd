"""Test metrics of the user: those of docs/metrics.md against scikit-learn, sharded as unsharded, and every refusal."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sk

from tests.components.exporters import TFLITE
from tests.components.workloads import QUICK
from tests.conftest import write_examples
from tfopt.artifacts import Model, PythonModule
from tfopt.component import find
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.user_metrics import load_metrics, read_metrics
from tfopt.errors import ComponentError
from tfopt.runtimes import load

RECORDS, SIDE, CLASSES = 700, 6, 3
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The Python file in docs/metrics.md."""
    file = tmp_path_factory.mktemp("module") / "metrics.py"
    file.write_text(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    return file


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    mask = generator.integers(0, CLASSES, (RECORDS, SIDE * SIDE))
    corner = generator.random((RECORDS, 2))
    return {
        "pixels": mask + generator.normal(0, 0.6, mask.shape),
        "mask": mask,
        "box": np.concatenate([corner, corner + generator.random((RECORDS, 2)) + 0.1], 1),
        "site": generator.integers(0, 2, RECORDS),
    }


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, data):
    """Two segmentation models, and examples in two shards."""
    folder = tmp_path_factory.mktemp("segmentation")
    split = folder / "examples" / "Split-eval"
    for file, rows in (("a_tfrecord.gz", slice(0, 600)), ("b_tfrecord", slice(600, None))):
        write_examples(split / file, {name: column[rows] for name, column in data.items()})
    models = [segmentation(folder / f"{name}.keras", shift) for name, shift in (("parent", 0.0), ("child", 0.35))]
    return {"baseline": models[0], "candidates": models[1:], "examples": folder / "examples", "replicates": 100}


def segmentation(file, shift):
    """Save a model whose class of a pixel is the nearest of 0, 1, 2 to its value plus the shift."""
    import keras

    image = keras.Input((SIDE, SIDE, 1), name="pixels")
    layer = keras.layers.Conv2D(CLASSES, 1, activation="softmax")
    model = keras.Model(image, layer(image))
    centers = np.arange(CLASSES)
    layer.set_weights([2.0 * centers.reshape(1, 1, 1, -1), 2.0 * shift * centers - np.square(centers)])
    model.save(file)
    return file


def predict(model, data):
    with load(Model(model)) as runtime:
        pixels = data["pixels"].reshape(-1, SIDE, SIDE, 1).astype(np.float32)
        return next(iter(runtime.run({"pixels": pixels}).values()))


@pytest.fixture(scope="module")
def report(inputs, module, tmp_path_factory):
    target = tmp_path_factory.mktemp("report") / "evaluation"
    outputs = evaluate(
        **inputs, evaluation=target, label="mask", module=module, metrics=["module:mean_iou"], slices=["site"]
    )
    return outputs["evaluation"]


@pytest.fixture
def run(tmp_path, inputs):
    """Return a function that evaluates with a module of this source and a metric ``score``."""

    def run(source, **changes):
        (tmp_path / "module.py").write_text(source)
        arguments = {**inputs, "evaluation": tmp_path / "evaluation", "label": "mask", "module": tmp_path / "module.py"}
        return evaluate(**arguments | {"metrics": ["module:score"]} | changes)["evaluation"].read()

    return run


def test_the_mean_iou_of_the_docs_matches_scikit_learn(report, inputs, data):
    content = report.read()
    assert (content["task"], content["output_kind"]) == ("other", "numbers")
    values = []
    for row, model in zip(content["models"], [inputs["baseline"], *inputs["candidates"]], strict=True):
        classes = predict(model, data).reshape(RECORDS, -1, CLASSES).argmax(-1)
        assert list(row["metrics"]) == ["mean_iou"]
        values.append(sk.jaccard_score(data["mask"].ravel(), classes.ravel(), average="macro"))
        assert row["metrics"]["mean_iou"]["value"] == pytest.approx(values[-1], rel=1e-9)
        assert row["metrics"]["mean_iou"]["higher_is_better"]
        for part in row["slices"]:
            rows = data["site"] == part["value"]
            expected = sk.jaccard_score(data["mask"][rows].ravel(), classes[rows].ravel(), average="macro")
            assert part["metrics"]["mean_iou"]["value"] == pytest.approx(expected, rel=1e-9)
    delta = content["models"][1]["delta"]["mean_iou"]
    assert delta["value"] == pytest.approx(values[1] - values[0], abs=1e-9)
    assert delta["low"] < delta["value"] < delta["high"] < 0
    assert list(report.metadata) == ["mean_iou[parent.keras]", "mean_iou[child.keras]"]


def mean_iou(labels, classes) -> float:
    """Compute the metric from counts, in a hundredth of the time of scikit-learn."""
    counts = np.bincount(CLASSES * labels.ravel() + classes.ravel(), minlength=CLASSES**2).reshape(CLASSES, CLASSES)
    hits = counts.diagonal()
    return float(np.mean(hits / (counts.sum(0) + counts.sum(1) - hits)))


def test_the_interval_of_the_difference_is_that_of_resampled_records(report, inputs, data):
    generator = np.random.default_rng(1)
    classes = [predict(model, data).reshape(RECORDS, -1, CLASSES).argmax(-1) for model in
               (inputs["baseline"], inputs["candidates"][0])]  # fmt: skip
    differences = []
    for _ in range(100):
        rows = generator.integers(0, RECORDS, RECORDS)
        parent, child = (mean_iou(data["mask"][rows], own[rows]) for own in classes)
        differences.append(child - parent)
    delta = report.read()["models"][1]["delta"]["mean_iou"]
    assert delta["high"] - delta["low"] == pytest.approx(3.92 * np.std(differences), rel=0.35)


def test_a_mean_metric_is_computed_next_to_those_of_the_task(tmp_path, data, module):
    import keras

    box = keras.Input((4,), name="near")
    model = keras.Model(box, keras.layers.Rescaling(1.0)(box))
    model.save(tmp_path / "copy.keras")
    near = data["box"] + np.random.default_rng(0).normal(0, 0.05, (RECORDS, 4))
    write_examples(tmp_path / "examples" / "Split-eval" / "a_tfrecord", {"near": near, "box": data["box"]})
    content = evaluate(
        tmp_path / "copy.keras", [tmp_path / "copy.keras"], tmp_path / "examples", tmp_path / "evaluation",
        label="box", module=module, metrics=["module:box_iou"], replicates=100,
    )["evaluation"].read()  # fmt: skip
    metrics = content["models"][0]["metrics"]
    assert list(metrics)[:3] == ["box_iou", "mean_absolute_error", "mean_squared_error"]
    low = np.maximum(near[:, :2], data["box"][:, :2])
    shared = np.maximum(np.minimum(near[:, 2:], data["box"][:, 2:]) - low, 0).prod(1)
    union = sum((box[:, 2:] - box[:, :2]).prod(1) for box in (near, data["box"])) - shared
    assert metrics["box_iou"]["value"] == pytest.approx((shared / union).mean(), rel=1e-5)
    assert metrics["box_iou"]["low"] < metrics["box_iou"]["value"] < metrics["box_iou"]["high"]


def test_a_metric_of_an_installed_module_is_an_object_with_a_direction(run):
    source = "tests.components.user_metric:absolute"
    content = run("", metrics=[source], task="other")
    parent, child = (row["metrics"]["absolute"] for row in content["models"])
    assert not parent["higher_is_better"]
    assert 0 < parent["value"] < child["value"]


def test_a_slice_in_which_the_metric_is_nan_lacks_it(run):
    source = """
import numpy as np
def score(labels, predictions):
    return np.stack([labels[:, 0] == 1, (labels[:, 0] == 1) & (predictions[:, 0, 0, 1] > 0.5)], 1)
score.higher_is_better = True
score.finish = lambda sums: sums[1] / sums[0] if sums[0] > 200 else np.nan
"""
    content = run(source, slices=["site"])
    assert content["models"][0]["metrics"]["score"]["value"] > 0.3
    assert [part["metrics"] for part in content["models"][0]["slices"]] == [{}, {}]


ONES = "import numpy as np\ndef score(labels, predictions):\n    return np.ones(len(labels))\n"
FINISHED = "score.higher_is_better = True\nscore.finish = "


@pytest.mark.parametrize(
    ("source", "received", "fix"),
    [
        ("def scores(a, b): pass", "metric module:score: no function score", "did you mean scores"),
        (ONES, "metric module:score: without higher_is_better", "score.higher_is_better = True below"),
        ("class score: higher_is_better = True", "metric module:score: a class", "write score.higher_is_better"),
        ("1 / 0", "importing it raised.*ZeroDivisionError", "correct the line"),
        ("def score(labels:", "SyntaxError", "correct that line"),
        (
            "def score(labels, predictions):\n    return labels.shrink()\nscore.higher_is_better = True",
            r"raised with 256 labels of shape \(256, 36\) and predictions of shape \(256, 6, 6, 3\).*has no attribute "
            "'shrink'",
            "correct the line shown above",
        ),
        (f"def score(a, b): return 'high'\n{FINISHED}1", "returned str", "return one row for each record"),
        (f"def score(a, b): return 0.5\n{FINISHED}1", r"returned the shape \(\)", "return one row for each record"),
        (f"def score(a, b): return a[:9]\n{FINISHED}1", r"returned the shape \(9, 36\)", "one row for each record"),
        (
            "def score(a, b): return a\nscore.higher_is_better = True",
            "36 terms of each record, and no finish",
            "lambda",
        ),
        (f"def score(a, b): return b[:, 0, 0, 0] / 0\n{FINISHED}1", "NaN, infinity .* for 256 of 256", "return 0 in"),
        (f"{ONES}{FINISHED}lambda sums: 'high'", "finish returned str", "return a float from score.finish"),
        (f"{ONES}{FINISHED}lambda sums: sums[1]", r"finish with sums of shape \(1,\).*IndexError", "return NaN from"),
        (f"{ONES}{FINISHED}lambda sums: np.nan", "NaN over 700 records", "what score.finish returns"),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide|invalid)")
def test_a_metric_that_does_not_work_is_refused(run, tmp_path, source, received, fix):
    with pytest.raises(ComponentError) as refusal:
        run(source)
    assert refusal.match(f"(?s)received: .*{received}.*expected: .+how to fix: .*{fix}")
    assert not (tmp_path / "evaluation").exists()


def test_a_metric_that_only_fails_for_a_candidate_is_reported_in_its_row(run):
    source = f"{ONES}    + 0 * check(predictions)\n".replace("return np.ones(len(labels))\n    +", "return 1 +")
    source += (
        "def check(predictions):\n    if predictions.mean(axis=(0, 1, 2))[2] > 0.36: raise ValueError('too many')\n"
    )
    source += "    return predictions[:, 0, 0, 0]\nscore.higher_is_better = True"
    parent, child = run(source)["models"]
    assert parent["metrics"]["score"]["value"] == 1
    assert child["error"].startswith("metric module:score: raised with")
    assert "ValueError: too many (expected a function" in child["error"]
    assert "\n" not in child["error"]
    assert child["metrics"] == child["delta"] == {}


@pytest.mark.parametrize(
    ("changes", "received", "fix"),
    [
        ({"metrics": ["score"]}, "metrics='score'", "metrics=module:score"),
        ({"metrics": ["metrics.py:score"]}, "metrics='metrics.py:score'", "your file as the input module"),
        ({"metrics": ["/my/metrics.py:score"]}, "metrics='/my/metrics.py:score'", "your file as the input module"),
        ({"metrics": ["module:latency"]}, "the name latency", "give the function another name"),
        ({"metrics": ["module:score", "a.b:score"]}, "the name score", "give the function another name"),
        ({"metrics": ["module:score"], "module": None}, "without the input module", "pass module=FILE.py"),
        ({"metrics": ["no_such_package.metrics:score"]}, "raised ModuleNotFoundError", "install it, or pass its file"),
        ({"metrics": [], "task": "other"}, "output of 108 values", r"metrics=module:FUNCTION"),
        ({"metrics": []}, "output of 108 values", r"metrics=module:FUNCTION"),
    ],
)
def test_a_wrong_reference_is_refused(run, changes, received, fix):
    with pytest.raises(ComponentError) as refusal:
        run(f"{ONES}score.higher_is_better = True", **changes)
    assert refusal.match(f"(?s)received: .*{received}.*expected: .+how to fix: .*{fix}")


def test_a_metric_with_the_name_of_one_of_the_task_is_refused(tmp_path, digits_model, digits_examples):
    (tmp_path / "module.py").write_text(ONES.replace("score", "macro_f1") + "macro_f1.higher_is_better = True")
    with pytest.raises(ComponentError, match=r"(?s)the name macro_f1.*accuracy.*give the function another name"):
        evaluate(
            digits_model, [digits_model], digits_examples, tmp_path / "evaluation",
            module=tmp_path / "module.py", metrics=["module:macro_f1"],
        )  # fmt: skip


def test_an_empty_split_is_refused_before_the_metric_is_called(run, tmp_path, inputs):
    write_examples(tmp_path / "examples" / "Split-eval" / "a_tfrecord", {"mask": np.ones((0, 36), int)})
    with pytest.raises(ComponentError, match=r"(?s)no records.*prepare the examples again"):
        run(f"{ONES}score.higher_is_better = True", examples=tmp_path / "examples")


def test_references_are_parsed_when_the_dag_is_built():
    first, second = read_metrics(["module:mean_iou", "a.b.c:f1"])
    assert (first.module, first.name, second.module, second.name) == ("module", "mean_iou", "a.b.c", "f1")
    with pytest.raises(ComponentError, match=r"(?s)metrics='mean iou'.*PACKAGE\.MODULE:FUNCTION"):
        evaluate.check({"metrics": ["mean iou"]})


def test_goals_and_the_objective_of_select_model_take_the_metric(
    tmp_path, exported_digits, digits_lite, digits_examples
):
    (tmp_path / "module.py").write_text(
        "import numpy as np\n"
        "def expense(labels, predictions):\n"
        "    return np.abs(predictions.argmax(1) - labels[:, 0])\n"
        "expense.higher_is_better = False\n"
    )
    models = {"baseline": digits_lite, "candidates": [exported_digits(TFLITE, "dynamic")[0]]}
    measured = evaluate(
        **models, examples=digits_examples, evaluation=tmp_path / "evaluation",
        module=tmp_path / "module.py", metrics=["module:expense"], replicates=100,
    )["evaluation"].read()  # fmt: skip
    find("benchmark")(**models, examples=digits_examples, benchmark=tmp_path / "benchmark", batch_sizes=["1"], **QUICK)
    reports = {name: tmp_path / name for name in ("evaluation", "benchmark", "selected", "decision", "blessing")}
    expense = measured["models"][1]["metrics"]["expense"]["value"]
    goals = [f"expense threshold {expense / 2}", "quality max_degradation 50%", "accuracy threshold 0.5"]
    decision = find("select_model")(**models, **reports, goals=goals, objective="quality")["decision"]
    rows = decision.read()["models"]
    assert [row["metrics"]["expense"] for row in rows] == [
        row["metrics"]["expense"]["value"] for row in measured["models"]
    ]
    assert any("expense is" in reason and "at most" in reason for reason in rows[1]["reasons"])
    page = (decision.path / "report.html").read_text()
    assert "expense" in page
    assert "--module module.py --metrics module:expense" in page


def test_a_worker_without_the_file_has_its_source(module):
    (metric,) = load_metrics(["module:mean_iou"], PythonModule(str(module)))
    arrived = pickle.loads(pickle.dumps(replace(metric, path="/nowhere/metrics.py")))
    labels, predictions = np.zeros((5, 36), int), np.eye(3)[np.zeros((5, 6, 6), int)]
    assert arrived.record_terms(labels, predictions).tolist() == [[36, 0, 0, 36, 0, 0]] * 5
    assert arrived.value(np.array([36.0, 0, 0, 72, 0, 9]), 5) == 0.25


def test_labels_of_text_and_of_varying_length_reach_the_metric(run, tmp_path, data):
    words = np.array(["left", "right"])[data["site"][:40]]
    columns = {"pixels": data["pixels"][:40], "side": words}
    write_examples(tmp_path / "text" / "Split-eval" / "a_tfrecord", columns)
    source = "def score(labels, predictions):\n    return labels[:, 0] == b'left'\nscore.higher_is_better = True"
    content = run(source, examples=tmp_path / "text", label="side")
    assert content["task"] == "other"
    assert content["models"][0]["metrics"]["score"]["value"] == pytest.approx((words == "left").mean())
    again = {"examples": tmp_path / "text", "label": "side", "evaluation": tmp_path / "again"}
    with pytest.raises(ComponentError, match=r"(?s)label 'side' is text.*int64 classes"):
        run(source, **again, task="multi_label")
    folder = tmp_path / "ragged"
    for number in range(2):  # records of 1 and of 2 values
        columns = {"pixels": data["pixels"][:20], "boxes": np.full((20, number + 1), 2.0)}
        write_examples(folder / "Split-eval" / f"{number}_tfrecord", columns)
    features = {"boxes": {"dtype": "float32", "shape": [None], "count": 40, "min": 2.0}}
    (folder / "examples.json").write_text(json.dumps({"features": features}))
    source = "def score(labels, predictions):\n    return labels.sum(1)\nscore.higher_is_better = True"
    content = run(source, examples=folder, label="boxes", evaluation=tmp_path / "boxes")
    assert content["models"][0]["metrics"]["score"]["value"] == pytest.approx(3)
