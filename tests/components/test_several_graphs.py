"""Test that of a SavedModel with several graphs, as TensorFlow 1 wrote them, the one that is served is used."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.component import find

TAGS = {"gpu only": [["serve", "gpu"]], "train, gpu, plain": [["train"], ["serve", "gpu"], ["serve"]]}
COMPONENTS = ("fold_batch_norm", "export_onnx", "export_tflite", "export_openvino", "compile_xla", "cast_precision")
CASES = [(tags, name) for tags in TAGS for name in COMPONENTS]
EVERY_CHANGE = (("train, gpu, plain", "fold_batch_norm"), ("gpu only", "export_onnx"))


def save(folder, tag_sets) -> SavedModel:
    """Save graphs of one set of variables; each has another factor, the one with the fewest tags of those served 1."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(folder))
    fewest = min((tags for tags in tag_sets if "serve" in tags), key=len)
    for number, tags in enumerate(tag_sets):
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            value = v1.placeholder(tf.float32, [None, 3], "value")
            initial = tf.constant(np.linspace(-1, 1, 6).reshape(3, 2), tf.float32)
            kernel = v1.get_variable("kernel", initializer=initial, use_resource=False)
            result = tf.sigmoid(tf.matmul(value, kernel) * (1.0 if tags is fewest else 3.0))
            session.run(v1.global_variables_initializer())
            signature = v1.saved_model.predict_signature_def({"value": value}, {"result": result})
            add = builder.add_meta_graph if number else builder.add_meta_graph_and_variables
            arguments = (tags,) if number else (session, tags)
            add(*arguments, signature_def_map={"serving_default": signature})
    builder.save()
    return SavedModel(folder)


@pytest.mark.parametrize(
    ("tags", "name"),
    [pytest.param(*case, marks=[] if case in EVERY_CHANGE else [pytest.mark.nightly]) for case in CASES],
)
def test_the_served_graph_is_used(tags, name, tmp_path):
    model = save(tmp_path / "model", TAGS[tags])
    values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    write_examples(tmp_path / "examples" / "Split-eval" / "data_tfrecord-00000-of-00001.gz", {"value": values})
    component = find(name)
    (port,) = component.outputs
    made = component(model=model, examples=Examples(tmp_path / "examples"), **{port: tmp_path / "made"})[port]
    expected = 1 / (1 + np.exp(-values @ np.linspace(-1, 1, 6).reshape(3, 2)))
    limit = 1e-2 if name == "cast_precision" else 1e-5
    for one in (model, made):
        with runtimes.load(one) as runtime:
            np.testing.assert_allclose(runtime.run({"value": values})["result"], expected, atol=limit)
