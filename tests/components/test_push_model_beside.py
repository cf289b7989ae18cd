"""What goes beside a pushed model: warm-up requests, labels, and the parent in its place with the reason."""

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
from tfopt.serving import warm_up


def push(model: Path, destination: Path, *, blessed: bool = True, **given) -> Pushed:
    number = len(list(destination.parent.glob("pushed*")))
    blessing = bless(model, destination.parent / f"blessing {number}", blessed=blessed)
    target = destination.parent / f"pushed {number}"
    return push_model(model, blessing, target, destination=str(destination), **given)["pushed"]


def tried(folder: Path, **verdicts) -> Path:
    """An infra blessing, as validate_serving writes it: a path and whether it could be served, by name."""
    rows = [
        {"name": name, "digest": Model(path).digest, "blessed": served, "reason": f"{name} was tried"}
        for name, (path, served) in verdicts.items()
    ]
    InfraBlessing(folder).write({"blessed": rows[0]["blessed"], "reason": rows[0]["reason"], "models": rows})
    return folder


@pytest.fixture
def models(tmp_path) -> tuple[Path, Path]:
    """A parent and its child, which nothing here runs."""
    parent, child = make_models([TRAINED, DIGITS[4]], tmp_path / "models")
    return parent, child


def test_warm_up_requests_are_real_examples_that_the_served_model_answers(digits_model, digits_examples, tmp_path):
    pushed = push(digits_model, tmp_path / "served", examples=digits_examples, warm_up_requests=3)
    assert pushed.read()["warm_up"] == "3 requests from examples, split 'eval'"
    asked = list(warm_up.read_requests(tmp_path / "served" / "1"))
    assert [request["image"].shape for request in asked] == [(1, 8, 8, 1)] * 3
    assert max(request["image"].max() for request in asked) == 16  # real digits
    assert pushed.read()["digest"] == Model(digits_model).digest  # the model's own, requests or not


def test_other_requests_are_no_other_version(digits_model, digits_examples, tmp_path):
    for count in (2, 5):
        pushed = push(digits_model, tmp_path / "served", examples=digits_examples, warm_up_requests=count).read()
    assert (pushed["version"], pushed["reason"]) == (1, "the newest version is this very model already")
    assert len(list(warm_up.read_requests(tmp_path / "served" / "1"))) == 2


def test_a_model_keeps_the_requests_that_it_brings(digits_model, digits_examples, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(digits_model, own)
    warm_up.write_requests(own / "Format-Serving", [{"image": np.zeros((4, 8, 8, 1), np.float32)}])
    assert push(own, tmp_path / "served", examples=digits_examples).read()["warm_up"] == "the model's own"
    assert next(warm_up.read_requests(tmp_path / "served" / "1"))["image"].shape == (4, 8, 8, 1)


def test_examples_of_something_else_are_refused_and_nothing_appears(digits_model, digits_examples, tmp_path):
    from tests.conftest import write_examples

    write_examples(tmp_path / "others" / "Split-eval" / "data_tfrecord", {"picture": np.zeros((2, 64), np.float32)})
    with pytest.raises(ComponentError, match="no feature 'image'"):
        push(digits_model, tmp_path / "served", examples=tmp_path / "others")
    assert not list((tmp_path / "served").iterdir())


def test_a_litert_file_lies_beside_its_names_types_and_labels(digits_lite, digits_examples, tmp_path):
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


def test_one_litert_file_is_one_version_whatever_it_is_called(digits_lite, tmp_path):
    file = digits_lite / "Format-Serving" / "tflite"
    for number, name in enumerate(("one.tflite", "two.tflite")):
        (tmp_path / str(number)).mkdir()
        shutil.copy(file, tmp_path / str(number) / name)
        pushed = push(tmp_path / str(number) / name, tmp_path / "app", layout="plain").read()
    assert (pushed["version"], pushed["reason"]) == (1, "the newest version is this very model already")


def test_a_litert_file_that_has_no_signature_is_said_to_have_none(tmp_path):
    free = ([None, 2], "float32")
    made = formulas.lite(tmp_path / "a.tflite", formulas.saved(tmp_path / "model", lambda x: {"y": x + x}, x=free))
    push(formulas.unsigned(tmp_path / "b.tflite", made).path, tmp_path / "app", layout="plain")
    facts = json.loads((tmp_path / "app" / "latest" / "metadata.json").read_text())
    assert (facts["signature"], list(facts["inputs"])) == (None, ["serving_default_x:0"])


def test_an_onnx_file_is_pushed_with_its_weights_wherever_they_lie(tmp_path):
    file = product(tmp_path)
    onnx.save(onnx.load(file), tmp_path / "net.onnx", save_as_external_data=True, location="w.data", size_threshold=8)
    for layout in ("plain", "triton"):
        push(tmp_path / "net.onnx", tmp_path / layout, layout=layout)
        rows = {"x": np.eye(3, dtype=np.float32)}
        assert np.allclose(runtimes.load(Model(tmp_path / layout / "1" / "model.onnx")).run(rows)["y"], FACTOR)


def test_labels_that_no_output_has_as_many_values_for_are_left_out(digits_lite, digits_examples, tmp_path):
    examples = tmp_path / "examples"
    shutil.copytree(digits_examples, examples)
    (examples / MANIFEST).write_text(json.dumps({"classes": ["even", "odd"]}))
    pushed = push(digits_lite, tmp_path / "app", layout="plain", examples=examples).read()
    assert pushed["labels"] == "none: no output has 2 values"
    assert not (tmp_path / "app" / "1" / "labels.txt").exists()


def test_the_parent_goes_in_the_place_of_an_unblessed_child_once_and_the_reason_with_it(models, tmp_path):
    parent, child = models
    reports = [push(child, tmp_path / "served", blessed=False, fallback=parent) for _ in range(2)]
    first, second = (report.read() for report in reports)
    assert (first["pushed"], first["version"], first["fallback"]) == (True, 1, True)
    assert (first["model"], first["digest"]) == ("trained", Model(parent).digest)
    assert first["reason"] == "trained in place of tflite int8, which is not blessed: so said"
    assert (reports[0].metadata["fallback"], reports[0].metadata["reason"]) == (1, first["reason"])
    assert (second["version"], second["fallback"]) == (1, True)
    assert second["reason"].startswith("the newest version is this very model already: trained in place of")
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["1"]


def test_a_blessed_child_is_pushed_whatever_the_fallback(models, tmp_path):
    parent, child = models
    served = tried(tmp_path / "infra", child=(child, True), parent=(parent, False))
    pushed = push(child, tmp_path / "served", fallback=parent, infra_blessing=served).read()
    assert (pushed["model"], pushed["fallback"], pushed["reason"]) == ("tflite int8", False, "blessed")


def test_a_child_that_cannot_be_served_gives_way_to_a_parent_that_can(models, tmp_path):
    parent, child = models
    verdicts = {"child": (child, False), "parent": (parent, True)}
    pushed = push(
        child, tmp_path / "served", fallback=parent, infra_blessing=tried(tmp_path / "infra", **verdicts)
    ).read()
    assert (pushed["model"], pushed["fallback"]) == ("trained", True)
    assert pushed["reason"].endswith("not blessed: it cannot be served: child was tried")


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ({"child": False}, "whether trained can be served was not tried"),
        ({"child": False, "parent": False}, "nor can trained be served: parent was tried"),
    ],
)
def test_a_parent_that_may_not_be_served_either_stays_where_it_is(models, tmp_path, verdicts, said):
    places = dict(zip(("parent", "child"), models, strict=True))
    infra = tried(tmp_path / "infra", **{name: (places[name], served) for name, served in verdicts.items()})
    pushed = push(models[1], tmp_path / "served", fallback=models[0], infra_blessing=infra).read()
    assert (pushed["pushed"], pushed["fallback"], pushed["version"]) == (False, False, None)
    assert said in pushed["reason"]
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("name", ["history", "recipe"])
def test_what_somebody_keeps_where_something_is_to_be_kept_is_refused_before_a_version_is_shown(tmp_path, name):
    decide(DIGITS, tmp_path / "made")
    Recipe(tmp_path / "found").write({"decision": {"selected_digest": "another"}})
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / name).write_text("notes")
    kept = {"decision": tmp_path / "made/decision"} if name == "history" else {"recipe": tmp_path / "found"}
    given = (tmp_path / "made/selected", tmp_path / "made/blessing", tmp_path / "p")
    with pytest.raises(ComponentError, match=f"{name} is no folder"):
        push_model(*given, destination=str(tmp_path / "served"), **kept)
    assert [path.name for path in (tmp_path / "served").iterdir()] == [name]


def test_a_parent_that_was_itself_chosen_and_not_blessed_is_no_fallback(models, tmp_path):
    parent, _ = models
    bare = tmp_path / "bare"
    shutil.copytree(parent / "Format-Serving", bare)  # as it lay before select_model made an artifact of it
    pushed = push(parent, tmp_path / "served", blessed=False, fallback=bare).read()
    assert (pushed["pushed"], pushed["reason"]) == (False, "not blessed: so said")


def test_a_parent_that_misses_a_threshold_is_no_fallback(models, tmp_path):
    parent, child = models
    blessing = bless(child, tmp_path / "b")
    Blessing(blessing).write(Blessing(blessing).read() | {"parent_blessed": False})
    verdicts = {"child": (child, False), "parent": (parent, True)}
    pushed = push_model(
        child,
        blessing,
        tmp_path / "p",
        infra_blessing=tried(tmp_path / "infra", **verdicts),
        fallback=parent,
        destination=str(tmp_path / "served"),
    )["pushed"].read()
    assert not pushed["pushed"]
    assert pushed["reason"].endswith("child was tried; nor does its parent meet the thresholds")


def test_an_infra_blessing_of_another_model_is_refused(models, tmp_path):
    parent, child = models
    with pytest.raises(ComponentError, match=r"(?s)infra_blessing of this very model.*validate_serving"):
        push(child, tmp_path / "served", infra_blessing=tried(tmp_path / "infra", parent=(parent, True)))
    assert not (tmp_path / "served").exists()
