"""Test the optional inputs of `push_model`: examples (warm-up, labels), fallback, infra_blessing, stored results."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.components.decisions import decide
from tests.components.test_push_model import bless
from tests.components.test_validate_serving import FACTOR, product
from tests.reports import DIGITS, TRAINED, make_models
from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Blessing, InfraBlessing, Model, Pushed, Recipe
from tfopt.components.push_model.component import push_model
from tfopt.data.feature_schema import MANIFEST
from tfopt.errors import ComponentError
from tfopt.reports.serving_report import ServedModel, ServingReport
from tfopt.serving import warm_up


def push(model: Path, destination: Path, *, blessed: bool = True, **arguments) -> Pushed:
    number = len(list(destination.parent.glob("pushed*")))
    blessing = bless(model, destination.parent / f"blessing {number}", blessed=blessed)
    target = destination.parent / f"pushed {number}"
    return push_model(model, blessing, target, destination=str(destination), **arguments)["pushed"]


def write_infra_blessing(folder: Path, **results) -> Path:
    """Write the output of validate_serving: for each name a path, and whether it can be served."""
    rows = [
        ServedModel(
            name, Model(path).digest, Model(path).format, "plain", "server", served, f"{name} was tested", None, None
        )
        for name, (path, served) in results.items()
    ]
    InfraBlessing(folder).write(ServingReport(rows[0].blessed, rows[0].reason, rows))
    return folder


@pytest.fixture
def models(tmp_path) -> tuple[Path, Path]:
    """Return the folders of a parent and its child, with placeholder files."""
    parent, child = make_models([TRAINED, DIGITS[4]], tmp_path / "models")
    return parent, child


def test_warm_up_requests_are_recorded_from_examples(digits_model, digits_examples, tmp_path):
    pushed = push(digits_model, tmp_path / "served", examples=digits_examples, warm_up_requests=3)
    assert pushed.read()["warm_up"] == "3 requests from examples, split 'eval'"
    requests = list(warm_up.read_requests(tmp_path / "served" / "1"))
    assert [request["image"].shape for request in requests] == [(1, 8, 8, 1)] * 3
    assert max(request["image"].max() for request in requests) == 16  # the largest value of a digit
    assert pushed.read()["digest"] == Model(digits_model).digest  # warm-up requests do not change the digest


def test_other_warm_up_requests_add_no_version(digits_model, digits_examples, tmp_path):
    for count in (2, 5):
        pushed = push(digits_model, tmp_path / "served", examples=digits_examples, warm_up_requests=count).read()
    assert (pushed["version"], pushed["reason"]) == (1, "the newest version is this very model already")
    assert len(list(warm_up.read_requests(tmp_path / "served" / "1"))) == 2


def test_warm_up_requests_of_the_model_are_preserved(digits_model, digits_examples, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(digits_model, own)
    warm_up.write_requests(own / "Format-Serving", [{"image": np.zeros((4, 8, 8, 1), np.float32)}])
    assert push(own, tmp_path / "served", examples=digits_examples).read()["warm_up"] == "the model's own"
    assert next(warm_up.read_requests(tmp_path / "served" / "1"))["image"].shape == (4, 8, 8, 1)


def test_examples_with_other_features_are_refused_and_no_version_is_added(digits_model, digits_examples, tmp_path):
    from tests.conftest import write_examples

    write_examples(tmp_path / "others" / "Split-eval" / "data_tfrecord", {"picture": np.zeros((2, 63), np.float32)})
    with pytest.raises(ComponentError, match="no feature 'image'"):
        push(digits_model, tmp_path / "served", examples=tmp_path / "others")
    assert not list((tmp_path / "served").iterdir())


def test_a_litert_file_is_pushed_with_metadata_and_labels(digits_lite, digits_examples, tmp_path):
    examples = tmp_path / "examples"
    shutil.copytree(digits_examples, examples)
    (examples / MANIFEST).write_text(json.dumps({"classes": [f"digit {n}" for n in range(10)]}))
    pushed = push(digits_lite, tmp_path / "app", layout="plain", examples=examples).read()
    assert pushed["labels"] == "10 classes of the examples, for digit"
    assert (tmp_path / "app" / "latest" / "labels.txt").read_text().splitlines()[3] == "digit 3"
    facts = json.loads((tmp_path / "app" / "latest" / "metadata.json").read_text())
    assert facts["inputs"]["image"] == {"dtype": "float32", "shape": [None, 8, 8, 1], "quantization": None}
    assert facts["outputs"]["digit"]["labels"] == "labels.txt"
    assert facts["signature"] == "serving_default"
    again = push(digits_lite, tmp_path / "other", layout="plain", examples=digits_examples).read()
    assert again["labels"] == "none: no examples that name their classes"
    assert not (tmp_path / "other" / "1" / "labels.txt").exists()


def test_the_file_name_of_a_litert_model_does_not_matter(digits_lite, tmp_path):
    file = digits_lite / "Format-Serving" / "tflite"
    for number, name in enumerate(("one.tflite", "two.tflite")):
        (tmp_path / str(number)).mkdir()
        shutil.copy(file, tmp_path / str(number) / name)
        pushed = push(tmp_path / str(number) / name, tmp_path / "app", layout="plain").read()
    assert (pushed["version"], pushed["reason"]) == (1, "the newest version is this very model already")


def test_the_metadata_of_a_litert_file_without_signature(tmp_path):
    free = ([None, 2], "float32")
    lite = formulas.lite(tmp_path / "a.tflite", formulas.saved(tmp_path / "model", lambda x: {"y": x + x}, x=free))
    push(formulas.without_signatures(tmp_path / "b.tflite", lite).path, tmp_path / "app", layout="plain")
    facts = json.loads((tmp_path / "app" / "latest" / "metadata.json").read_text())
    assert (facts["signature"], list(facts["inputs"])) == (None, ["serving_default_x:0"])


def test_an_onnx_file_is_pushed_with_its_external_data(tmp_path):
    file = product(tmp_path)
    onnx.save(onnx.load(file), tmp_path / "net.onnx", save_as_external_data=True, location="w.data", size_threshold=8)
    for layout in ("plain", "triton"):
        push(tmp_path / "net.onnx", tmp_path / layout, layout=layout)
        rows = {"x": np.eye(3, dtype=np.float32)}
        assert np.allclose(runtimes.load(Model(tmp_path / layout / "1" / "model.onnx")).run(rows)["y"], FACTOR)


def test_labels_that_fit_no_output_are_left_out(digits_lite, digits_examples, tmp_path):
    examples = tmp_path / "examples"
    shutil.copytree(digits_examples, examples)
    (examples / MANIFEST).write_text(json.dumps({"classes": ["even", "odd"]}))
    pushed = push(digits_lite, tmp_path / "app", layout="plain", examples=examples).read()
    assert pushed["labels"] == "none: no output has 2 values"
    assert not (tmp_path / "app" / "1" / "labels.txt").exists()


def test_the_fallback_replaces_an_unblessed_model_once_and_reports_the_reason(models, tmp_path):
    parent, child = models
    reports = [push(child, tmp_path / "served", blessed=False, fallback=parent) for _ in range(2)]
    first, second = (report.read() for report in reports)
    assert (first["pushed"], first["version"], first["fallback"]) == (True, 1, True)
    assert (first["model"], first["digest"]) == ("trained", Model(parent).digest)
    assert first["reason"] == "trained instead of tflite int8, which is not blessed: meets the goals"
    assert (reports[0].metadata["fallback"], reports[0].metadata["reason"]) == (1, first["reason"])
    assert (second["version"], second["fallback"]) == (1, True)
    assert second["reason"].startswith("the newest version is this very model already: trained instead of")
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["1", "versions"]


def test_a_blessed_model_is_pushed_even_if_the_fallback_cannot_be_served(models, tmp_path):
    parent, child = models
    served = write_infra_blessing(tmp_path / "infra", child=(child, True), parent=(parent, False))
    pushed = push(child, tmp_path / "served", fallback=parent, infra_blessing=served).read()
    assert (pushed["model"], pushed["fallback"], pushed["reason"]) == ("tflite int8", False, "blessed")


def test_the_fallback_replaces_a_model_that_cannot_be_served(models, tmp_path):
    parent, child = models
    verdicts = {"child": (child, False), "parent": (parent, True)}
    pushed = push(
        child, tmp_path / "served", fallback=parent, infra_blessing=write_infra_blessing(tmp_path / "infra", **verdicts)
    ).read()
    assert (pushed["model"], pushed["fallback"]) == ("trained", True)
    assert pushed["reason"].endswith("not blessed: it cannot be served: child was tested")


@pytest.mark.parametrize(
    ("verdicts", "reason"),
    [
        ({"child": False}, "trained has no serving test"),
        ({"child": False, "parent": False}, "trained is not pushed either: parent was tested"),
    ],
)
def test_a_fallback_without_a_passed_serving_test_is_not_pushed(models, tmp_path, verdicts, reason):
    paths = dict(zip(("parent", "child"), models, strict=True))
    infra = write_infra_blessing(
        tmp_path / "infra", **{name: (paths[name], served) for name, served in verdicts.items()}
    )
    pushed = push(models[1], tmp_path / "served", fallback=models[0], infra_blessing=infra).read()
    assert (pushed["pushed"], pushed["fallback"], pushed["version"]) == (False, False, None)
    assert reason in pushed["reason"]
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("name", ["history", "recipe"])
def test_a_foreign_file_named_history_or_recipe_is_refused_before_a_version_is_added(tmp_path, name):
    decide(DIGITS, tmp_path / "run")
    Recipe(tmp_path / "recipe").write({"decision": {"selected_digest": "another"}})
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / name).write_text("notes")
    stored = {"decision": tmp_path / "run/decision"} if name == "history" else {"recipe": tmp_path / "recipe"}
    arguments = (tmp_path / "run/selected", tmp_path / "run/blessing", tmp_path / "p")
    with pytest.raises(ComponentError, match=f"{name} is no folder"):
        push_model(*arguments, destination=str(tmp_path / "served"), **stored)
    assert [path.name for path in (tmp_path / "served").iterdir()] == [name]


@pytest.mark.parametrize("name", ["decision", "recipe"])
def test_a_damaged_report_is_refused_before_a_version_is_added(tmp_path, name):
    decide(DIGITS, tmp_path / "run")
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.json").write_text('{"cut')
    (tmp_path / name / "report.html").write_text("")
    arguments = (tmp_path / "run/selected", tmp_path / "run/blessing", tmp_path / "p")
    with pytest.raises(ComponentError, match=rf"{name}\.json"):
        push_model(*arguments, destination=str(tmp_path / "served"), **{name: tmp_path / name})
    assert not (tmp_path / "served").exists()


def test_an_empty_destination_is_refused(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ComponentError, match=r"(?s)destination.*an empty path.*name a folder"):
        push_model(models[0], tmp_path / "blessing", tmp_path / "p", destination="")
    assert not (tmp_path / "1").exists()


def test_an_unblessed_baseline_is_not_its_own_fallback(models, tmp_path):
    parent, _ = models
    bare = tmp_path / "bare"
    shutil.copytree(parent / "Format-Serving", bare)  # as before select_model made an artifact from it
    pushed = push(parent, tmp_path / "served", blessed=False, fallback=bare).read()
    assert (pushed["pushed"], pushed["reason"]) == (False, "not blessed: meets the goals")


def test_a_fallback_that_misses_a_threshold_is_not_pushed(models, tmp_path):
    parent, child = models
    blessing = bless(child, tmp_path / "b")
    Blessing(blessing).write(Blessing(blessing).read() | {"parent_blessed": False})
    verdicts = {"child": (child, False), "parent": (parent, True)}
    pushed = push_model(
        child,
        blessing,
        tmp_path / "p",
        infra_blessing=write_infra_blessing(tmp_path / "infra", **verdicts),
        fallback=parent,
        destination=str(tmp_path / "served"),
    )["pushed"].read()
    assert not pushed["pushed"]
    assert pushed["reason"].endswith("child was tested; its parent does not meet the thresholds either")


def test_an_infra_blessing_of_another_model_is_refused(models, tmp_path):
    parent, child = models
    with pytest.raises(ComponentError, match=r"(?s)infra_blessing of this very model.*validate_serving"):
        push(child, tmp_path / "served", infra_blessing=write_infra_blessing(tmp_path / "infra", parent=(parent, True)))
    assert not (tmp_path / "served").exists()
