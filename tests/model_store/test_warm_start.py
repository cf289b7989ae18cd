"""Test the stored Keras model of a destination, and the training that starts from it."""

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.components.test_push_model import changed, push
from tests.components.train_modules import SMALL, write
from tests.reports import DIGITS as REPORTED
from tests.reports import make_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import load_model, store_model


@pytest.fixture
def model(tmp_path):
    """Return the model to push."""
    return make_models([REPORTED[4]], tmp_path / "models")[0]


@pytest.fixture
def trained(tmp_path, digits_model):
    """Return the folders of two different Keras models."""
    other = tmp_path / "other"
    shutil.copytree(digits_model, other)
    (other / "model_card.json").write_text('{"name": "later"}')
    (other / "Format-Keras" / "more").write_text("more")
    return digits_model, other


def test_push_stores_the_trained_model_next_to_the_versions(model, trained, tmp_path):
    served = tmp_path / "served here"
    assert load_model(served) is None
    facts = push(model, served, trained=trained[0]).read()
    assert facts["trained"] == str(served / "trained")
    assert load_model(served).digest == KerasModel(trained[0]).digest
    new = changed(model, "new")
    push(new, served, trained=trained[1])
    assert load_model(served).card.name == "later"
    assert len(list(served.glob(".trained-*"))) == 1  # the older one is gone
    again = push(new, served, trained=trained[1]).read()
    assert (again["version"], load_model(served).card.name) == (2, "later")


def test_push_refuses_a_foreign_folder_named_trained_before_it_adds_a_version(model, trained, tmp_path):
    (tmp_path / "served" / "trained").mkdir(parents=True)
    with pytest.raises(ComponentError, match="trained is no link"):
        push(model, tmp_path / "served", trained=trained[0])
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["trained"]
    assert push(model, tmp_path / "served").read()["version"] == 1  # without a trained model to store, the name is free


def test_concurrent_pushes_leave_one_complete_model(trained, tmp_path):
    models = [KerasModel(path) for path in trained]
    (tmp_path / "served").mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store_model(tmp_path / "served", models[number % 2]), range(100)))
    assert load_model(tmp_path / "served").digest in {model.digest for model in models}
    assert len(list((tmp_path / "served").iterdir())) == 2  # the model, and the link to it


def test_a_write_into_the_folder_of_the_run_does_not_change_what_was_pushed(model, trained, tmp_path):
    source = tmp_path / "run" / "trained"
    shutil.copytree(trained[0], source)
    served = tmp_path / "served"
    push(model, served, trained=source)
    digest = load_model(served).digest
    for file in [path for path in source.rglob("*") if path.is_file()]:
        with file.open("ab") as stream:  # in place
            stream.write(b"later")
    assert load_model(served).digest == digest
    assert all(path.stat().st_nlink == 1 for path in served.rglob("*") if path.is_file())


def test_a_model_that_is_not_pushed_does_not_replace_the_stored_one(model, trained, tmp_path):
    push(model, tmp_path / "served", trained=trained[0])
    facts = push(changed(model, "new"), tmp_path / "served", blessed=False, trained=trained[1]).read()
    assert "trained" not in facts
    assert load_model(tmp_path / "served").digest == KerasModel(trained[0]).digest


def test_training_starts_from_the_stored_model_or_from_scratch(model, tmp_path, digits_examples, caplog):
    caplog.set_level(logging.INFO, "tfopt")
    arguments = {
        "examples": digits_examples,
        "module": write(tmp_path / "m.py", SMALL),
        "destination": str(tmp_path / "served"),
    }
    first = train(**arguments, trained=tmp_path / "first", epochs=1)["trained"]
    assert "none yet, training starts from scratch" in caplog.text
    assert "start" not in first.metadata
    with pytest.raises(ComponentError, match=r"(?s)s4://bucket/served.*how to fix"):
        train(**{**arguments, "destination": "s4://bucket/served"}, trained=tmp_path / "remote")
    push(model, tmp_path / "served", trained=first.path)
    second = train(**arguments, trained=tmp_path / "second", epochs=1)["trained"]
    assert second.metadata["start"]["digest"] == first.digest
    third = train(**arguments, trained=tmp_path / "third", epochs=1, min_change=0.2)["trained"]
    assert third.digest == first.digest and third.metadata["unchanged"] == 1


def test_a_stored_model_that_somebody_put_there_is_replaced_and_not_loaded(trained, tmp_path):
    served, other = tmp_path / "served", KerasModel(trained[1])
    planted = served / f".trained-{KerasModel(trained[0]).digest[:16]}"
    shutil.copytree(other.path, planted)
    store_model(served, KerasModel(trained[0]))
    assert load_model(served).digest == KerasModel(trained[0]).digest
    (planted / "Format-Keras" / "more").write_text("changed")
    with pytest.raises(ComponentError, match="a model with the digest"):
        load_model(served)


def test_a_link_that_leads_out_of_the_destination_is_refused(model, trained, tmp_path):
    push(model, tmp_path / "served", trained=trained[0])
    (tmp_path / "served" / "trained").unlink()
    (tmp_path / "served" / "trained").symlink_to(trained[1])
    with pytest.raises(ComponentError, match="leads to") as error:
        load_model(tmp_path / "served")
    assert error.value.fix.startswith("remove the link")
    (tmp_path / "served" / "trained").unlink()
    assert load_model(tmp_path / "served") is None
