"""Test that a model with changed weights is compared with the model that it was made from."""

import keras
import numpy as np

from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.training.weight_changes import save_and_compare


def test_the_changed_model_is_saved_and_compared_with_its_baseline(tmp_path):
    image = keras.Input((4,), name="x")
    model = keras.Model(image, keras.layers.Dense(3, name="y")(image))
    keras_models.save(model, tmp_path / "baseline")
    changed = keras.models.clone_model(model)
    changed.set_weights([1.5 * weight for weight in model.get_weights()])
    baseline, target = KerasModel(tmp_path / "baseline"), tmp_path / "changed"
    (parity,) = save_and_compare(changed, target, baseline, model, None, fix="")["outputs"].values()
    assert 0.1 < parity["relative_error"] < 1
    np.testing.assert_allclose(keras_models.load(KerasModel(target)).get_weights()[0], 1.5 * model.get_weights()[0])
