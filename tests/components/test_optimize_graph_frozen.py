"""Tests of `optimize_graph` on a frozen GraphDef, which has no signatures."""

import numpy as np
import pytest
import tensorflow as tf

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.cli.main import main
from tfopt.component import find
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError
from tfopt.graph.session import evaluate

ENDS = {"inputs": ["in/a", "in/b"], "outputs": ["first", "second:0"]}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A file with two inputs of unknown batch size and two outputs."""
    draw = np.random.default_rng(0)
    with tf.Graph().as_default() as made:
        a, b = (tf.compat.v1.placeholder(tf.float32, [None, size], f"in/{name}") for name, size in (("a", 4), ("b", 3)))
        flow = tf.matmul(a, tf.constant(draw.normal(size=(4, 3)), tf.float32)) * 2.0 + 1.0
        tf.identity(tf.nn.relu(flow + b), name="first")
        tf.identity(tf.tanh(flow * b), name="second")
    file = tmp_path_factory.mktemp("graph") / "graph.pb"
    file.write_bytes(made.as_graph_def().SerializeToString())
    return file


def test_frozen_graph_is_read_by_names_of_inputs_and_outputs_and_written(graph, tmp_path):
    result = optimize_graph(graph, tmp_path / "optimized", **ENDS, passes=["size"], frozen_graph=True)["optimized"]
    a, b = (np.random.default_rng(1).normal(size=(5, size)).astype("float32") for size in (4, 3))
    before = evaluate(
        tf.compat.v1.GraphDef.FromString(graph.read_bytes()), ["first:0", "second:0"], {"in/a:0": a, "in/b:0": b}
    )
    served = runtimes.load(SavedModel(result.path))
    assert served.inputs["a"].shape == (None, 4)
    answers = served.run({"a": a, "b": b})
    names = result.card.facts["frozen_graph"]["serving_default"]
    written = tf.compat.v1.GraphDef.FromString((result.path / "frozen.pb").read_bytes())
    assert [node.op for node in written.node].count("Mul") == 1  # one of two: the factor went into the kernel
    feeds = {names["inputs"]["a"]: a, names["inputs"]["b"]: b}
    after = evaluate(written, [names["outputs"]["first"], names["outputs"]["second"]], feeds)
    for expected, one, other in zip(before, after, (answers["first"], answers["second"]), strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-5)
        np.testing.assert_allclose(other, expected, atol=1e-5)


@pytest.mark.parametrize(("missing", "named"), [("inputs", ["in/a", "in/b"]), ("outputs", ["first", "second"])])
def test_missing_names_are_refused_and_the_existing_ones_listed(graph, tmp_path, missing, named):
    with pytest.raises(ComponentError, match=f"names of its {missing}") as refusal:
        optimize_graph(graph, tmp_path / "optimized", **{**ENDS, missing: []})
    assert f"{missing}={named}" in refusal.value.fix


def test_unknown_name_is_refused_with_the_nearest(graph, tmp_path):
    with pytest.raises(ComponentError, match="did you mean second"):
        optimize_graph(graph, tmp_path / "optimized", inputs=["in/a", "in/b"], outputs=["secnd"])


def test_names_for_a_model_with_signatures_are_refused(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="a model with signatures"):
        optimize_graph(digits_model, tmp_path / "optimized", inputs=["x"])


def test_names_on_the_command_line_have_commas_in_between(graph, tmp_path):
    from tfopt.cli.main import main

    inputs = ["--inputs", "in/a,in/b", "--outputs", "first, second:0", "--passes", "size"]
    main(["optimize_graph", "--model", str(graph), "--optimized", str(tmp_path / "made"), *inputs])
    assert set(runtimes.load(SavedModel(tmp_path / "made")).outputs) == {"first", "second"}


@pytest.mark.parametrize("name", ["fold_batch_norm", "inspect_model", "export_onnx", "quantize"])
def test_others_name_the_component_that_makes_a_saved_model_of_it(graph, tmp_path, name):
    component = find(name)
    (port,) = component.outputs
    others = {name: tmp_path for name in component.inputs if name != "model"}
    with pytest.raises(ComponentError, match="does not name its inputs and outputs") as refusal:
        component(model=graph, **{port: tmp_path / "output"}, **others)
    command = refusal.value.fix.partition(": tfopt ")[2].partition(",")[0]
    names = command.replace("--inputs NODE", "--inputs in/a in/b").replace("--outputs NODE", "--outputs first second")
    assert main(names.replace("PATH", str(tmp_path / "optimized")).split()) == 0
    if name == "inspect_model":
        assert component(tmp_path / "optimized", tmp_path / "output")[port]
