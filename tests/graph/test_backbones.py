"""Tests of all laws on common backbones: batch norms are folded, and outputs stay within tolerance."""

import sys
from importlib.util import find_spec
from pathlib import Path

import keras
import pytest

from tfopt.components.optimize_graph.component import optimize_graph

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from graph import MODELS, one_model

# For the two signatures that Keras exports. In a DenseNet, most batch norms follow operations without a kernel.
REMAINING = {"DenseNet121": {"it follows ConcatV2": 116, "it follows MaxPool": 2, "it follows AvgPool": 6}}


def check(name, library, folder, side):
    row = one_model(name, library, folder, side)
    assert row["batch norms left"] == REMAINING.get(name, {})
    assert row["taken back"] == {}
    assert row["error"] <= 1e-4
    assert row["nodes"][1] < row["nodes"][0] / 3


@pytest.mark.nightly  # daily: test_batch_norm_positions.py
def test_the_first_blocks_of_a_mobile_net_have_no_batch_norm_left(tmp_path, monkeypatch):
    """They are one of each kind: without expansion, with stride 2, with a residual sum; the other 13 repeat them."""
    mobile_net = keras.applications.MobileNetV2

    def first_blocks(**options):
        model = mobile_net(**options)
        flow = keras.layers.GlobalAveragePooling2D()(model.get_layer("block_3_project_BN").output)
        return keras.Model(model.input, keras.layers.Dense(10)(flow))

    monkeypatch.setattr(keras.applications, "MobileNetV2", first_blocks)
    check("MobileNetV2", "keras", tmp_path, 32)


@pytest.mark.nightly
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
@pytest.mark.parametrize("name", MODELS)
def test_backbones_of_both_keras_versions_have_no_foldable_batch_norm(name, library, tmp_path):
    check(name, library, tmp_path, 96)


@pytest.mark.nightly
def test_third_party_pretrained_model_keeps_its_outputs(tmp_path):
    folder = Path(find_spec("basic_pitch").origin).parent / "saved_models/icassp_2022/nmp"
    card = optimize_graph(folder, tmp_path / "optimized", passes=["portable"])["optimized"].card.facts
    assert card["report"]["taken_back"] == {}
    assert max(facts["relative_error"] for facts in card["verified"]["outputs"].values()) <= 1e-4
    (reason,) = card["report"]["batch_norms_left"].values()  # two of three are gone
    assert reason.startswith("it follows ExpandDims")
