"""Test that a rewritten model is written only if it serves the outputs of its baseline."""

import pytest
import tensorflow as tf

from tfopt.artifacts import SavedModel
from tfopt.errors import ComponentError
from tfopt.saved_models import saved_model
from tfopt.serving.verified_write import write_verified


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two SavedModels, the second with other outputs."""
    folder = tmp_path_factory.mktemp("models")
    for name, factor in (("doubled", 2.0), ("tripled", 3.0)):
        module = tf.Module()
        module.f = tf.function(
            lambda x, factor=factor: {"y": tf.nn.tanh(factor * x)},
            input_signature=[tf.TensorSpec([None, 3], name="x")],
        )
        tf.saved_model.save(module, str(folder / name), signatures=module.f.get_concrete_function())
    return folder


def test_equal_outputs_are_reported(models, tmp_path):
    frozen = saved_model.read(models / "doubled", state=True)
    options = {"what": "folded", "fix": "pass a larger tolerance"}
    verified = write_verified(SavedModel(models / "doubled"), frozen, tmp_path, None, None, **options)
    assert [parity["max_abs_error"] for parity in verified["outputs"].values()] == pytest.approx([0], abs=1e-6)
    assert (tmp_path / "Format-Serving" / "saved_model.pb").is_file()


def test_other_outputs_are_refused(models, tmp_path):
    frozen = saved_model.read(models / "tripled", state=True)
    options = {"what": "folded", "fix": "pass a larger tolerance"}
    with pytest.raises(ComponentError, match="of the folded model differs by"):
        write_verified(SavedModel(models / "doubled"), frozen, tmp_path, None, None, **options)
