"""Test that a component passes on no model that differs from its parent in a way it does not declare."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.contract.three_layers import build_model
from tfopt import Input, component
from tfopt.artifacts import CARD, Examples, SavedModel
from tfopt.component import Component, Output, components, find
from tfopt.errors import ComponentError
from tfopt.keras_models.io import save


@pytest.fixture(scope="module")
def parent(tmp_path_factory) -> Path:
    """A Keras model with input ``image`` and moved batch-norm statistics."""
    import keras

    keras.utils.set_random_seed(3)
    model = build_model()
    inputs = np.random.default_rng(0).uniform(-2, 5, (64, 8, 8, 1)).astype(np.float32)
    model.fit(inputs, np.arange(64) % 10, epochs=2, verbose=0)
    folder = tmp_path_factory.mktemp("parent") / "model"
    save(model, folder)
    return folder


def maker(change, **options) -> Component:
    """A component that writes a SavedModel of ``change(model)`` and verifies nothing itself."""

    def make(model: Input[SavedModel], made: Output[SavedModel], examples: Input[Examples] | None = None) -> None:
        import tensorflow as tf

        loaded = tf.saved_model.load(str(model.saved_model))
        function = loaded.signatures["serving_default"]
        (name,) = function.structured_outputs
        image = tf.TensorSpec((None, 8, 8, 1), tf.float32, name="image")

        @tf.function(input_signature=[image])
        def serve(image):
            return change(name, function(image=image)[name])

        module = tf.Module()
        module.loaded, module.serve = loaded, serve
        folder = made.path / "Format-Serving"
        tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})

    return component(image="tf", **options)(make)


def test_a_model_that_computes_the_same_passes_and_its_parity_is_in_the_card(parent, tmp_path, digits_examples):
    same = maker(lambda name, value: {name: value})
    same(model=parent, made=tmp_path / "random")
    same(model=parent, made=tmp_path / "real", examples=digits_examples)
    verified = [json.loads((tmp_path / folder / CARD).read_text())["verified"] for folder in ("random", "real")]
    assert [facts["tolerance"] for facts in verified] == [1e-3, 1e-3]
    for facts in verified:
        (parity,) = facts["outputs"].values()
        assert parity["relative_error"] < 1e-6 and parity["records"] > 30
    assert verified[0]["inputs"] != verified[1]["inputs"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, value: {"scores": value}, "outputs became scores"),
        (lambda name, value: {name: value[:, :9]}, r"float32\[\?,9\]"),
        (lambda name, value: {name: value[:, ::-1]}, "differs by .* of its range"),
        (lambda name, value: {name: value * 1.01}, "at most 0.001, as the component declares"),
        (lambda name, value: {name: value * np.float32("nan")}, "NaN or infinity"),
    ],
    ids=["renamed output", "other shape", "permuted classes", "scaled by 1 %", "NaN"],
)
def test_a_changed_model_is_refused_and_nothing_is_left(parent, tmp_path, change, message):
    with pytest.raises(ComponentError, match=message):
        maker(change)(model=parent, made=tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_a_component_may_declare_that_outputs_differ_but_not_that_they_are_constant_or_renamed(parent, tmp_path):
    maker(lambda name, value: {name: value * 1.01}, tolerance=0.05)(model=parent, made=tmp_path / "near")
    maker(lambda name, value: {name: value[:, ::-1]}, tolerance=None)(model=parent, made=tmp_path / "far")
    for change, message in (
        (lambda name, value: {"scores": value}, "outputs became scores"),
        (lambda name, value: {name: value * 0.0 + 0.1}, "same|constant"),
    ):
        with pytest.raises(ComponentError, match=message):
            maker(change, tolerance=None)(model=parent, made=tmp_path / "refused")


@pytest.mark.parametrize("name", components())
def test_components_whose_outputs_may_differ_are_listed_here(name):
    assert find(name).tolerance is not None or name in {"prune", "cluster", "quantize"}
