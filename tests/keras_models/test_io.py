import collections
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto

from tfopt import keras_models, runtimes
from tfopt.artifacts import CARD, KerasModel, SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.measurement import parity
from tfopt.runtimes import keras as keras_runtime

A = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
B = np.random.default_rng(2).normal(size=(3, 2)).astype(np.float32)


@keras.saving.register_keras_serializable("tests")
class Subclass(keras.Model):
    """A subclassed Functional model."""


def sequential(kit):
    return kit.Sequential([kit.Input((4,), name="a"), kit.layers.Dense(3), kit.layers.BatchNormalization(name="last")])


def two_by_two(kit, inputs=list, outputs=list):
    a, b = kit.Input((4,), name="a"), kit.Input((2,), name="b")
    both = kit.layers.Concatenate()([a, b])
    first, second = kit.layers.Dense(3, name="z")(both), kit.layers.Dense(2, name="q")(a)
    nested = {list: [b, a], dict: {"b": b, "a": a}, collections.OrderedDict: collections.OrderedDict(b=b, a=a)}
    return kit.Model(nested[inputs], {"score": first, "extra": second} if outputs is dict else [first, second])


def nested(kit):
    a, b = kit.Input((4,), name="a"), kit.Input((2,), name="b")
    return kit.Model([a, b], kit.Model.__call__(two_by_two(kit), [b, a]), name="outer")


def one_layer_twice(kit):
    shared = kit.layers.Dense(3, name="d")
    a, c = kit.Input((4,), name="a"), kit.Input((4,), name="c")
    return kit.Model([a, c], [shared(a), shared(c)])


def one_output_twice(kit):
    a = kit.Input((4,), name="a")
    first, second = kit.layers.Dense(3)(a), kit.layers.Dense(2)(a)
    return kit.Model(a, {"x": first, "y": second, "z": first})


def words(kit):
    word = kit.Input((1,), name="word", dtype="string")
    ids = kit.layers.StringLookup(vocabulary=["p", "q"])(word)
    return kit.Model(word, kit.layers.Flatten(name="o")(kit.layers.Embedding(3, 4)(ids)))


def integers(kit):
    ids = kit.Input((4,), name="ids", dtype="int32")
    return kit.Model(ids, kit.layers.Embedding(9, 2, name="o")(ids))


def fixed_batch(kit):
    a = kit.Input(batch_shape=(1, 4), name="a")
    return kit.Model(a, kit.layers.Dense(3, name="o")(a))


@keras.saving.register_keras_serializable("tests")
class Noise(keras.layers.Layer):
    """A layer with random numbers at inference, whose generator state must be saved."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.generator)


TEXT = np.array([["p"], ["q"], ["?"]], object)
MODELS = {
    "sequential": (sequential, {"a": A}, {"last": 3}),
    "lists": (two_by_two, {"a": A, "b": B}, {"z": 3, "q": 2}),
    "dicts": (lambda kit: two_by_two(kit, dict, dict), {"a": A, "b": B}, {"score": 3, "extra": 2}),
    "ordered": (lambda kit: two_by_two(kit, collections.OrderedDict), {"a": A, "b": B}, {"z": 3, "q": 2}),
    "one layer twice": (one_layer_twice, {"a": A, "c": A * 2}, {"d": 3, "d_1": 3}),
    "one output twice": (one_output_twice, {"a": A}, {"x": 3, "y": 2, "z": 3}),
    "text": (words, {"word": TEXT}, {"o": 4}),
    "integers": (integers, {"ids": np.arange(12, dtype=np.int32).reshape(3, 4) % 9}, {"o": 4}),
    "fixed batch": (fixed_batch, {"a": A}, {"o": 3}),
}


# Daily of Keras 2, one model with several inputs and outputs.
MODELS_OF_KITS = [
    pytest.param(
        kit,
        *model,
        marks=[pytest.mark.nightly] if kit is tf_keras and name != "dicts" else [],
        id=f"{name}-{kit.__name__}",
    )
    for name, model in MODELS.items()
    for kit in (keras, tf_keras)
]


@pytest.mark.parametrize(("kit", "make", "batch", "widths"), MODELS_OF_KITS)
def test_outputs_of_both_forms_match_the_model(kit, make, batch, widths, tmp_path):
    model = make(kit)
    moved(model)
    keras_models.save(model, tmp_path)
    artifact = KerasModel.open(tmp_path)
    written, served = keras_runtime.load(artifact, signature="", threads=None), runtimes.load(artifact)
    assert keras_models.is_keras_2(keras_models.load(artifact)) == (kit is tf_keras)
    served.check(batch)
    assert {name: spec.shape[1] for name, spec in served.outputs.items()} == widths
    assert {spec.shape[0] for spec in (*served.inputs.values(), *served.outputs.values())} == {None}
    tensors = keras_models.pack_inputs(model, {name: tf.constant(array) for name, array in batch.items()})
    expected = dict(zip(keras_models.served_names(model), outputs_of(model, tensors), strict=True))
    for runtime in (written, served):
        for name, output in runtime.run(batch).items():
            np.testing.assert_allclose(output, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_nested_model_keeps_all_its_outputs(kit, tmp_path):
    keras_models.save(nested(kit), tmp_path)
    served = runtimes.load(KerasModel.open(tmp_path))
    assert sorted(spec.shape[1] for spec in served.outputs.values()) == [2, 3]
    inner = next(layer.name for layer in nested(kit).layers if hasattr(layer, "layers")).rpartition("_")[0]
    assert all(name.startswith(inner) for name in served.outputs)


def test_variables_keep_their_names_in_the_saved_model(tmp_path, caplog):
    with caplog.at_level("INFO", "absl"):  # where TensorFlow lists every one that it calls unknown_1 and so on
        keras_models.save(two_by_two(keras), tmp_path)
    assert "unknown" not in caplog.text


def test_random_state_is_saved_too(tmp_path):
    a = keras.Input((4,), name="a")
    keras_models.save(keras.Model(a, Noise(name="o")(a)), tmp_path)
    served = runtimes.load(KerasModel.open(tmp_path))
    assert not np.array_equal(served.run({"a": A})["o"], served.run({"a": A})["o"])


def test_subclass_with_known_inputs_is_saved_and_loaded(tmp_path):
    a = keras.Input((4,), name="a")
    keras_models.save(Subclass(a, keras.layers.Dense(3, name="o")(a)), tmp_path)
    loaded = keras_models.load(KerasModel.open(tmp_path))
    assert type(loaded) is Subclass
    assert runtimes.load(KerasModel.open(tmp_path)).inputs == {"a": TensorSpec("float32", (None, 4))}


def test_output_names_are_used(tmp_path):
    keras_models.save(two_by_two(keras), tmp_path, output_names=["first", "second"])
    served = runtimes.load(KerasModel.open(tmp_path))
    assert {name: spec.shape[1] for name, spec in served.outputs.items()} == {"first": 3, "second": 2}


def test_output_names_rename_a_dict_in_the_order_of_the_models_outputs(tmp_path):
    model = two_by_two(keras, dict, dict)
    assert keras_models.served_names(model) == ["extra", "score"]
    keras_models.save(model, tmp_path, output_names=["narrow", "wide"])
    served = runtimes.load(KerasModel.open(tmp_path))
    assert {name: spec.shape[1] for name, spec in served.outputs.items()} == {"narrow": 2, "wide": 3}


def test_too_few_output_names_are_refused(tmp_path):
    with pytest.raises(ComponentError, match="1 output names: only"):
        keras_models.save(two_by_two(keras), tmp_path, output_names=["only"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("name", ["model.h5", "model.hdf5", "Format-Keras/model.hdf5"])
def test_h5_is_loaded_with_the_keras_that_wrote_it(kit, name, tmp_path):
    model = sequential(kit)
    (tmp_path / "Format-Keras").mkdir()
    model.save(tmp_path / name)
    loaded = keras_models.load(KerasModel.open(tmp_path if "/" in name else tmp_path / name))
    assert keras_models.library(loaded) is kit
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


def test_saved_model_written_by_keras_2_is_loaded(tmp_path):
    model = sequential(tf_keras)
    model.save(tmp_path / "saved", save_format="tf")
    loaded = keras_models.load(KerasModel.open(tmp_path / "saved"))
    np.testing.assert_allclose(loaded(A), model(A), rtol=1e-6)


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("suffix", ["keras", "h5", "hdf5"])
@pytest.mark.parametrize("fraction", [0, 0.5, 0.97])
def test_truncated_file_is_refused(kit, suffix, fraction, tmp_path):
    file = tmp_path / f"model.{suffix}"
    sequential(kit).save(file)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(ComponentError) as caught:
        keras_models.load(KerasModel.open(file))
    assert str(file) in caught.value.received
    assert "truncated" in caught.value.fix


def test_file_of_another_kind_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("readme.txt", "no model")
    with pytest.raises(ComponentError, match=r"metadata\.json"):
        keras_models.load(KerasModel.open(tmp_path / "model.keras"))


@pytest.mark.parametrize("kit", [keras, tf_keras])
def test_weights_without_layers_are_named_as_such_and_loaded_as_told(kit, tmp_path):
    model = kit.Sequential([kit.Input((4,)), kit.layers.Dense(2)])
    file = tmp_path / "only.weights.h5"
    model.save_weights(file)
    with pytest.raises(ComponentError, match="weights without the layers") as error:
        keras_models.load(KerasModel(file))
    assert 'model.load_weights("only.weights.h5") and model.save("model.keras")' in error.value.fix
    model.load_weights(file)  # as the error tells
    model.save(tmp_path / "model.keras")
    assert keras_models.load(KerasModel(tmp_path / "model.keras")).count_params() == 10


def test_unregistered_custom_layer_is_named_when_loading(tmp_path):
    class Doubled(keras.layers.Layer):
        def call(self, inputs):
            return inputs * 2

    a = keras.Input((4,), name="a")
    keras.Model(a, Doubled()(a)).save(tmp_path / "model.keras")
    with pytest.raises(ComponentError, match="Doubled") as caught:
        keras_models.load(KerasModel.open(tmp_path / "model.keras"))
    assert "registered" in caught.value.fix


def test_no_keras_form_is_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "Format-Serving"))
    with pytest.raises(ComponentError, match="no Keras form"):
        keras_models.load(KerasModel(tmp_path))


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_model_without_known_inputs_is_refused(kit, tmp_path):
    class Later(kit.Model):
        def call(self, inputs):
            return inputs

    for model in (Later(), kit.Sequential([kit.layers.Dense(2)])):
        with pytest.raises(ComponentError, match="without known inputs"):
            keras_models.save(model, tmp_path)


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_nan_in_a_weight_is_refused_and_named(kit, tmp_path):
    model = sequential(kit)
    weight = model.layers[-1].moving_variance
    weight.assign([1.0, float("nan"), 1.0])
    with pytest.raises(ComponentError, match=r"1 NaN in weight .*moving_variance"):
        keras_models.save(model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_all_weights_with_nan_are_named_up_to_five():
    model = keras.Sequential([keras.Input((2,)), *(keras.layers.Dense(2, name=f"d{number}") for number in range(4))])
    for layer in model.layers[:3]:
        layer.kernel.assign([[1.0, float("nan")], [float("nan"), 2.0]])
        layer.bias.assign([1.0, float("nan")])
    with pytest.raises(ComponentError) as refusal:
        keras_models.check_weights(model)
    weights = [weight for layer in model.layers[:3] for weight in (layer.kernel, layer.bias)]
    listed = [f"{len(weight.shape)} NaN in weight {weight.path}" for weight in weights]
    assert refusal.value.received == f"model {model.name}: {', '.join(listed[:5])}, and in 1 more"


@pytest.mark.parametrize("name", ["my-image", "größe", "a.b", "class", "None"])
def test_input_name_that_a_signature_would_change_is_refused(name, tmp_path):
    a = keras.Input((4,), name=name)
    with pytest.raises(ComponentError) as caught:
        keras_models.save(keras.Model(a, keras.layers.Dense(1)(a)), tmp_path)
    assert repr(name) in caught.value.received
    assert "rename" in caught.value.fix


def test_model_that_keras_cannot_write_is_refused(tmp_path):
    class Closed(keras.layers.Layer):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def call(self, inputs):
            return inputs

    a = keras.Input((4,), name="a")
    with pytest.raises(ComponentError, match="get_config"):
        keras_models.save(keras.Model(a, Closed(object())(a)), tmp_path)


def test_parity_of_the_two_forms_detects_one_changed_weight(tmp_path):
    model = sequential(keras)
    keras_models.save(model, tmp_path / "one")
    model.layers[0].kernel.assign_add(model.layers[0].kernel * 0 + 0.001)
    keras_models.save(model, tmp_path / "two")
    one, two = (runtimes.load(KerasModel.open(tmp_path / name)) for name in ("one", "two"))
    assert parity.compare(one, two, [{"a": A}])["last"].max_abs_error > 1e-4


def test_a_placed_saved_model_has_no_model_card_of_its_parent(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / CARD).write_text("{}")
    proto = SavedModelProto()
    proto.meta_graphs.add().meta_info_def.tags.append("serve")
    (parent / "saved_model.pb").write_bytes(proto.SerializeToString())
    keras_models.place_saved_model(SavedModel(parent), tmp_path / "placed")
    assert [file.name for file in (tmp_path / "placed").iterdir()] == ["saved_model.pb"]
    assert (parent / CARD).is_file()


def moved(model):
    """Set statistics of batch norms that change the outputs."""
    for weight in model.weights:
        if "moving" in weight.name:
            weight.assign(np.linspace(0.5, 2, int(np.prod(weight.shape))))


def outputs_of(model, tensors):
    results = model(tensors, training=False)
    if isinstance(results, dict):
        results = [results[name] for name in keras_models.served_names(model)]
    return [np.asarray(result) for result in tf.nest.flatten(results)]


def test_inputs_without_a_name_are_saved(tmp_path):
    left, right = keras.Input((3,)), keras.Input((3,))
    model = keras.Model({"a": left, "b": right}, keras.layers.Dense(2)(left + 2 * right))
    keras_models.save(model, tmp_path / "model")
    values = {name: np.full((2, 3), n + 1, np.float32) for n, name in enumerate(keras_models.input_names(model))}
    served = tf.saved_model.load(str(tmp_path / "model" / "Format-Serving")).signatures["serving_default"]
    (output,) = served(**{name: tf.constant(value) for name, value in values.items()}).values()
    ordered = dict(zip(("a", "b"), values.values(), strict=True))
    np.testing.assert_allclose(output, model.predict(ordered, verbose=0), atol=1e-6)


@pytest.mark.parametrize("kit", [keras, tf_keras])
def test_a_sequential_model_without_an_input_has_the_same_input_in_both_forms(kit, tmp_path):
    model = kit.Sequential([kit.layers.Dense(3)])
    model(A)
    keras_models.save(model, tmp_path / "model")
    artifact = SavedModel(tmp_path / "model")
    loaded = keras_models.load(artifact)
    with runtimes.load(artifact) as runtime:
        assert list(runtime.inputs) == keras_models.input_names(loaded) == keras_models.input_names(model)
        (output,) = runtime.run(dict.fromkeys(runtime.inputs, A)).values()
    assert np.allclose(output, loaded.predict(A, verbose=0), atol=1e-6)
