"""The model behind the newest version is kept beside the versions, and the next training begins with it."""

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.components.test_push_model import changed, push
from tests.components.train_modules import DIGITS, write
from tests.reports import DIGITS as REPORTED
from tests.reports import make_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.model_store.last_run import keep, kept


@pytest.fixture
def model(tmp_path):
    """What is pushed."""
    return make_models([REPORTED[4]], tmp_path / "models")[0]


@pytest.fixture
def trained(tmp_path, digits_model):
    """Two Keras models that differ."""
    other = tmp_path / "other"
    shutil.copytree(digits_model, other)
    (other / "model_card.json").write_text('{"name": "later"}')
    (other / "Format-Keras" / "more").write_text("more")
    return digits_model, other


def test_what_is_pushed_has_what_it_was_made_of_beside_it(model, trained, tmp_path):
    served = tmp_path / "served here"
    assert kept(served) is None
    facts = push(model, served, trained=trained[0]).read()
    assert facts["trained"] == str(served / "trained")
    assert kept(served).digest == KerasModel(trained[0]).digest
    new = changed(model, "new")
    push(new, served, trained=trained[1])
    assert kept(served).card["name"] == "later"
    assert len(list(served.glob(".trained-*"))) == 1  # the older one is gone
    again = push(new, served, trained=trained[1]).read()
    assert (again["version"], kept(served).card["name"]) == (2, "later")


def test_a_folder_of_somebodys_own_in_its_place_is_refused_before_a_version_is_shown(model, trained, tmp_path):
    (tmp_path / "served" / "trained").mkdir(parents=True)
    with pytest.raises(ComponentError, match="trained is no link"):
        push(model, tmp_path / "served", trained=trained[0])
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["trained"]
    assert push(model, tmp_path / "served").read()["version"] == 1  # without a start to keep nothing is in the way


def test_pushes_at_once_leave_one_whole_model(trained, tmp_path):
    models = [KerasModel(path) for path in trained]
    (tmp_path / "served").mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: keep(tmp_path / "served", models[number % 2]), range(200)))
    assert kept(tmp_path / "served").digest in {model.digest for model in models}
    assert len(list((tmp_path / "served").iterdir())) == 2  # the model, and the link to it


def test_what_is_not_pushed_is_not_begun_with(model, trained, tmp_path):
    push(model, tmp_path / "served", trained=trained[0])
    facts = push(changed(model, "new"), tmp_path / "served", blessed=False, trained=trained[1]).read()
    assert "trained" not in facts
    assert kept(tmp_path / "served").digest == KerasModel(trained[0]).digest


def test_a_training_begins_with_the_last_one_or_anew_where_there_is_none(
    model,
    tmp_path,
    digits_examples,
    caplog,
):
    caplog.set_level(logging.INFO, "tfopt")
    given = {"examples": digits_examples, "module": write(tmp_path / "m.py", DIGITS), "last": str(tmp_path / "served")}
    first = train(**given, trained=tmp_path / "first", epochs=1)["trained"]
    assert "none yet, so learning begins anew" in caplog.text
    assert "start" not in first.metadata
    with pytest.raises(ComponentError, match="last=gs://bucket/served"):  # nothing is ever pushed there
        train(**{**given, "last": "gs://bucket/served"}, trained=tmp_path / "remote")
    push(model, tmp_path / "served", trained=first.path)
    second = train(**given, trained=tmp_path / "second", epochs=1)["trained"]
    assert second.metadata["start"]["digest"] == first.digest
    third = train(**given, trained=tmp_path / "third", epochs=1, min_change=0.2)["trained"]
    assert third.digest == first.digest and third.metadata["unchanged"] == 1
