"""Test models whose open sizes have a least value: random inputs are too small for them, examples are not."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError

COMPONENTS = (fold_batch_norm, optimize_graph, export_onnx, export_tflite)


def with_daily(*daily):
    """Return a parametrization with all components; the given ones run on every change, the others nightly."""
    cases = [pytest.param(one, marks=[] if one in daily else [pytest.mark.nightly]) for one in COMPONENTS]
    return pytest.mark.parametrize("component", cases, ids=lambda component: component.name)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a model that crops 50 steps at each end of its sequences."""
    import keras
    from keras import layers

    steps = keras.Input((None, 4), name="steps")
    flow = layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(8, 5, padding="same")(steps)))
    outputs = layers.Conv1D(3, 1)(layers.Cropping1D(50)(flow))
    file = tmp_path_factory.mktemp("model") / "crop.keras"
    keras.Model(steps, outputs).save(file)
    return KerasModel(file)


@with_daily(fold_batch_norm)
def test_nothing_is_proven_by_outputs_without_values(component, model, tmp_path):
    with pytest.raises(ComponentError) as error:
        component(model, tmp_path / "out")
    assert "pass examples=PATH" in error.value.fix
    assert not list(tmp_path.iterdir())


@with_daily(optimize_graph)
def test_examples_have_the_sizes(component, model, tmp_path):
    columns = {"steps": np.random.default_rng(0).normal(size=(6, 110 * 4)), "label": np.zeros(6, np.int64)}
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "a", columns)
    (made,) = component(model, tmp_path / "out", Examples(tmp_path / "examples")).values()
    (output,) = made.card.facts["verified"]["outputs"].values()
    assert output["output_range"] > 0.1
