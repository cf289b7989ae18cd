import keras
import numpy as np
import pytest

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.components import export_tflite

TEXTS = ["the red fox", "a green dog jumps", "blue sky", "red"]


@pytest.mark.nightly
def test_a_recurrent_layer_behind_text_runs_once_for_each_record_in_litert(tmp_path):
    words = keras.Input((), dtype="string", name="text")
    vectorized = keras.layers.TextVectorization(20, output_sequence_length=5)
    vectorized.adapt(np.array(TEXTS))
    hidden = keras.layers.LSTM(3)(keras.layers.Embedding(20, 4, mask_zero=True)(vectorized(words)))
    model = keras.Model(words, keras.layers.Dense(2, name="o")(hidden))
    model.save(tmp_path / "text.keras")
    export_tflite(model=str(tmp_path / "text.keras"), exported=str(tmp_path / "exported"))
    with runtimes.load(Model(tmp_path / "exported")) as exported:
        outputs = exported.run({"text": np.array([text.encode() for text in TEXTS], object)})
    expected = model.predict(np.array(TEXTS, object), verbose=0)
    np.testing.assert_allclose(outputs["o"], expected, atol=1e-6)
