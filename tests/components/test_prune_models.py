"""Test `prune` on models of every kind, and the models that it refuses."""

import json

import keras
import numpy as np
import pytest

from tests.components.train_modules import DIGITS, LINEAR, write
from tests.conftest import small_digits_model
from tfopt import keras_models, runtimes
from tfopt.artifacts import CARD, KerasModel
from tfopt.components.cluster.cluster_weights import share
from tfopt.components.prune.component import prune
from tfopt.components.prune.kernels import find_kernels, input_axis
from tfopt.components.prune.masked_training import Masks, wrap_kernels
from tfopt.components.prune.parameters import Pattern
from tfopt.components.quantize.fake_quant_training import Trainee
from tfopt.errors import ComponentError
from tfopt.keras_models.weight_constraints import is_n_m

OWN = """
import keras
from keras import layers

@keras.saving.register_keras_serializable()
class Block(keras.Model):
    def __init__(self, width, **more):
        super().__init__(**more)
        self.width = width
        self.inner = keras.Sequential([layers.Dense(width, "relu"), layers.Dense(width)], name="inner")

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.width), name="kernel")
        self.inner.build((shape[0], self.width))

    def call(self, inputs):
        return self.inner(keras.ops.relu(inputs @ self.kernel))

    def get_config(self):
        return {**super().get_config(), "width": self.width}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = Block(16, name="block")(layers.Rescaling(1 / 16)(layers.Flatten()(image)))
    model = keras.Model(image, layers.Dense(10, "softmax", name="digit")(flow))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def test_a_nested_subclassed_model_is_pruned_with_all_of_its_weights(tmp_path, digits_examples):
    module = write(tmp_path / "module.py", OWN)
    keras.utils.set_random_seed(0)
    model = saved(tmp_path / "model", keras_of(module))
    options = {"sparsity": 0.75, "epochs": 2, "batch_size": 64}
    out = prune(model, tmp_path / "out", digits_examples, module, **options)["pruned"]
    names = [layer["layer"] for layer in out.metadata["report"]["layers"]]
    assert names == ["block", "block/inner/dense", "block/inner/dense_1", "digit"]
    assert out.metadata["fine_tuned"]["after"]["val_loss"] < out.metadata["fine_tuned"]["before"]["val_loss"]
    for kernel in find_kernels(keras_models.load(out), Pattern("magnitude"), []):
        assert (kernel.values == 0).mean() == 0.75


@pytest.mark.parametrize("library", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def test_a_nested_model_that_is_used_twice_is_pruned_once_in_place(tmp_path, library, digits_examples):
    body = "inner = keras.Sequential([layers.Conv2D(4, 3), layers.Conv2D(4, 3)], name='inner')"
    text = (
        LINEAR.replace("def build_model():", f"def build_model():\n    {body}")
        .replace(
            "flow = layers.Flatten()(layers.Rescaling(1 / 16)(image))",
            "flow = layers.Rescaling(1 / 16)(image)\n"
            "    flow = layers.Concatenate()([inner(flow), inner(layers.Activation('tanh')(flow))])\n"
            "    flow = layers.Flatten()(flow)",
        )
        .replace("SGD(0.5)", "Adam(0.005)")
    )
    module = write(tmp_path / "module.py", text.replace("keras", library))
    model = saved(tmp_path / "model", keras_of(module))
    options = {"sparsity": 0.5, "epochs": 1, "batch_size": 128, "layers": ["inner"], "schedule": "constant"}
    out = prune(model, tmp_path / "out", digits_examples, module, **options)["pruned"]
    layers = {layer["layer"]: (layer["sparsity"], layer["left"]) for layer in out.metadata["report"]["layers"]}
    inner = {name: facts for name, facts in layers.items() if name.startswith("inner/")}
    assert list(inner.values()) == [(0.5, None), (0.5, None)]
    assert layers["digit"] == (0.0, "not one of the selected layers")
    trained = {k.path: k.values for k in find_kernels(keras_models.load(out), Pattern("magnitude"), [])}
    before = {k.path: k.values for k in find_kernels(keras_models.load(model), Pattern("magnitude"), [])}
    for name in inner:
        live = trained[name] != 0
        assert (trained[name] != before[name])[live].all()


def test_recurrent_attention_and_convolution_kernels_are_found_with_their_input_axis():
    import keras
    from keras import layers

    words = keras.Input((12,), dtype="int32")
    flow = layers.Embedding(50, 8)(words)
    flow = layers.MultiHeadAttention(2, 8, name="attention")(flow, flow)
    flow = layers.SeparableConv1D(8, 3, name="separable")(flow)
    flow = layers.Conv1DTranspose(4, 3, name="transposed")(flow)
    flow = layers.Bidirectional(layers.LSTM(4, name="lstm"), name="both")(flow)
    model = keras.Model(words, layers.Dense(3, name="out")(flow))
    kernels = {f"{k.path}.{k.name}": k for k in find_kernels(model, Pattern("n_m"), [])}
    axes = {name: (tuple(kernel.variable.shape), input_axis(kernel)) for name, kernel in kernels.items()}
    assert axes["attention/query.kernel"] == ((8, 2, 8), 0)
    assert axes["attention/attention_output.kernel"] == ((2, 8, 8), 1)
    assert axes["separable.pointwise_kernel"] == ((1, 8, 8), 1)
    assert len([name for name in axes if name.endswith("recurrent_kernel")]) == 2
    assert not [name for name in axes if "embedding" in name]
    assert kernels["transposed.kernel"].left == "a transposed convolution, for which no runtime has sparse groups"
    Masks(list(kernels.values()), Pattern("n_m")).update(0.5)
    for kernel in kernels.values():
        assert kernel.left or is_n_m(kernel.values, 2, 4, input_axis(kernel))


def test_a_layer_shared_by_two_models_is_one_kernel():
    import keras
    from keras import layers

    shared = layers.Dense(4)
    first, second = (keras.Sequential([keras.Input((4,)), shared, layers.ReLU()]) for _ in range(2))
    inputs = keras.Input((4,))
    model = keras.Model(inputs, [first(inputs), second(layers.ReLU()(inputs))])
    assert len(find_kernels(model, Pattern("magnitude"), [])) == 1


def test_a_bare_keras_file_is_compared_on_random_inputs(tmp_path):
    small_digits_model().save(tmp_path / "digits.keras")
    out = prune(tmp_path / "digits.keras", tmp_path / "out", sparsity=0.3)["pruned"]
    assert out.metadata["verified"]["inputs"] == "random inputs"
    assert runtimes.load(out).inputs["image"].shape == (None, 8, 8, 1)


def test_xnnpack_is_faster_in_pointwise_convolutions_of_supported_networks(tmp_path):
    import keras
    from keras import layers

    def build(stride):
        image = layers.Input((16, 16, 3))
        flow = layers.ReLU()(layers.Conv2D(8, 3, stride, padding="same", name="stem")(image))
        flow = layers.Conv2D(16, 1, name="pointwise")(flow)
        return keras.Model(image, layers.Dense(4)(layers.GlobalAveragePooling2D()(flow)))

    speedups = {}
    for stride, sparsity in ((2, 0.8), (2, 0.5), (1, 0.8)):
        path = tmp_path / f"{stride}{sparsity}.keras"
        build(stride).save(path)
        out = prune(path, tmp_path / f"out{stride}{sparsity}", sparsity=sparsity)["pruned"]
        layer = next(row for row in out.metadata["report"]["layers"] if row["layer"] == "pointwise")
        speedups[stride, sparsity] = layer["speed"]["xnnpack"]
    assert speedups[2, 0.8] == "yes: if the file is exported sparse in float32; measure it"
    assert speedups[2, 0.5] == "no: under 67% zeros"
    assert speedups[1, 0.8].startswith("no: only in a network that starts with a 3x3 convolution of stride 2")


@pytest.mark.parametrize(
    ("component", "message"),
    [("prune", "prune after prune"), ("cluster", "after cluster"), ("quantize", "after quantize")],
)
def test_a_model_that_was_pruned_clustered_or_quantized_is_refused_at_once(tmp_path, component, message):
    small_digits_model().save(tmp_path / "model.keras")
    folder = tmp_path / "model"
    (folder / "Format-Keras").mkdir(parents=True)
    (tmp_path / "model.keras").rename(folder / "Format-Keras" / "model.keras")
    (folder / CARD).write_text(json.dumps({"component": component, "parameters": {"pattern": "magnitude"}}))
    with pytest.raises(ComponentError, match=message):
        prune(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("before", "message", "pattern"),
    [
        ({"sparsity": 0.5}, "with many weights that are zero already", "channel"),
        ({"clusters": 8}, "with shared weights", "magnitude"),
        ({}, "a model that was quantized already", "channel"),
        *(
            pytest.param(before, message, pattern, marks=pytest.mark.nightly)
            for before, message, pattern in (
                ({"sparsity": 0.5}, "with many weights that are zero already", "magnitude"),
                ({"clusters": 8}, "with shared weights", "channel"),
                ({}, "a model that was quantized already", "magnitude"),
            )
        ),
    ],
)
def test_a_shrunk_model_without_a_model_card_is_refused(tmp_path, pattern, before, message):
    model = small_digits_model()
    if "clusters" in before:
        for kernel in find_kernels(model, Pattern("magnitude"), []):
            kernel.variable.assign(share(kernel.values, 8, "density", keep_zeros=False, seed=0))
    elif before:
        Masks(find_kernels(model, Pattern("magnitude"), []), Pattern("magnitude")).update(0.5)
    else:
        model = Trainee(model, [], {}, zeros=False, clusters=False).model
    model.save(tmp_path / "m.keras")
    with pytest.raises(ComponentError, match=message):
        prune(tmp_path / "m.keras", tmp_path / "out", pattern=pattern)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": 1.0}, "from 0 to 0.99"),
        ({"sparsity": -0.1}, "from 0 to 0.99"),
        ({"pattern": "n_m", "ratio": "4:2"}, "write 2:4"),
        ({"pattern": "block", "block": "1x1"}, "write 1x4"),
        ({"pattern": "n_m", "layers": ["conv2d"]}, "1 input channels are not divisible by 4"),
        ({"pattern": "n_m", "ratio": "1:7"}, "nothing to prune .conv2d: 1 input channels are not divisible by 7"),
        ({"pattern": "block", "layers": ["conv2d"]}, "blocks need a matrix"),
        ({"layers": ["digits"]}, "did you mean digit"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(tmp_path, options, message):
    small_digits_model().save(tmp_path / "digits.keras")
    with pytest.raises(ComponentError, match=message):
        prune(tmp_path / "digits.keras", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_keras_form_is_refused(tmp_path, digits_model):
    with pytest.raises(ComponentError, match="no Keras form"):
        prune(digits_model / "Format-Serving", tmp_path / "out")


def test_a_model_without_kernels_is_refused(tmp_path):
    import keras

    keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()]).save(tmp_path / "m.keras")
    with pytest.raises(ComponentError, match="no layer has a kernel"):
        prune(tmp_path / "m.keras", tmp_path / "out")


def test_a_module_without_examples_or_of_the_other_keras_or_not_compiled_is_refused(
    tmp_path, digits_model, digits_examples
):
    good = write(tmp_path / "good.py", DIGITS)
    with pytest.raises(ComponentError, match="a module without examples"):
        prune(digits_model, tmp_path / "out", module=good)
    other = write(tmp_path / "other.py", DIGITS.replace("keras", "tf_keras"))
    with pytest.raises(ComponentError, match="a Keras 2 model"):
        prune(digits_model, tmp_path / "out", digits_examples, other)
    bare = write(tmp_path / "bare.py", DIGITS.replace("    model.compile", "    0 and model.compile"))
    with pytest.raises(ComponentError, match="not compiled"):
        prune(digits_model, tmp_path / "out", digits_examples, bare)
    with pytest.raises(ComponentError, match="no feature 'digit' to train on"):
        prune(digits_model, tmp_path / "out", digits_examples, good, label="digit")


def test_a_model_with_constant_outputs_is_refused(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((50,)), keras.layers.Dense(1, "relu"), keras.layers.Dense(1)])
    first, second = model.layers[0], model.layers[1]
    first.set_weights([np.concatenate([np.full((49, 1), 0.1), [[-1.0]]]), np.zeros(1)])
    second.set_weights([np.ones((1, 1)), np.zeros(1)])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ComponentError, match="the same values for every input"):
        prune(tmp_path / "m.keras", tmp_path / "out", sparsity=0.97)


def test_fine_tuning_a_nested_subclassed_keras_2_model_is_refused(tmp_path):
    import tf_keras

    from tfopt.components.prune.patterns import plan_schedule

    class Inner(tf_keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf_keras.layers.Dense(4)

        def call(self, inputs):
            return self.dense(inputs)

    inputs = tf_keras.Input((4,))
    model = tf_keras.Model(inputs, Inner()(inputs))
    kernels = find_kernels(model, Pattern("magnitude"), [])
    with pytest.raises(ComponentError, match="leave the module out"):
        wrap_kernels(model, kernels, Pattern("magnitude"), plan_schedule("constant", 0.5, steps=1))


def keras_of(module):
    from tfopt.training.user_module import UserModule

    return UserModule(module).call("build_model")


def saved(folder, model) -> KerasModel:
    keras_models.save(model, folder)
    return KerasModel(folder)
