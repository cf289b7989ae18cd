"""Test `evaluate` on the digits data set: metrics as in scikit-learn, three-part errors, every record counted."""

import json
import shutil

import numpy as np
import pytest
from sklearn import metrics as sk

from tests.conftest import cut_between_records, write_examples
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate import beam_pipeline, component
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.examples.records import read_part
from tfopt.components.evaluate.loaded_models import predict
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.processes.preloaded_processes import preloading
from tfopt.reports.report_schema import dump


@pytest.fixture(scope="module")
def digits(digits_examples):
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1)), "label": TensorSpec("int64", (None, 1))}
    return next(read_batches(Examples(digits_examples).split("eval"), specs, batch_size=397))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory, digits_model):
    """The digits model with noise in its last layer, as a bare Keras file."""
    return modified(digits_model, tmp_path_factory.mktemp("noisy") / "noisy.keras", noise=0.2)


@pytest.fixture(scope="module")
def lite(tmp_path_factory, digits_model):
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(digits_model / "Format-Serving"))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    file = tmp_path_factory.mktemp("lite") / "lite.tflite"
    file.write_bytes(converter.convert())
    return file


@pytest.fixture(scope="module")
def result(tmp_path_factory, digits_model, lite, noisy, digits_examples):
    target = tmp_path_factory.mktemp("result") / "evaluation"
    copy = digits_model / "Format-Keras" / "model.keras"
    outputs = evaluate(digits_model, [lite, noisy, copy], digits_examples, target, slices=["label"], top_k=2)
    assert sorted(file.name for file in target.iterdir()) == ["evaluation.json"]
    return outputs["evaluation"]


@pytest.fixture
def run(tmp_path, digits_lite, digits_examples):
    """Return a function that runs `evaluate` with changed arguments; by default a LiteRT file is its own candidate."""

    def run(**changes):
        arguments = {"baseline": digits_lite, "candidates": [digits_lite], "examples": digits_examples}
        arguments |= {"evaluation": tmp_path / "evaluation", "replicates": 100}
        return evaluate(**arguments | changes)["evaluation"].read()

    return run


def modified(model, file, *, noise=0.0, nan=False):
    import keras

    loaded = keras.models.load_model(model / "Format-Keras" / "model.keras")
    kernel, bias = loaded.layers[-1].get_weights()
    kernel = kernel + noise * np.random.default_rng(0).normal(size=kernel.shape)
    bias[3] = np.nan if nan else bias[3]
    loaded.layers[-1].set_weights([kernel, bias])
    loaded.save(file)
    return file


def predictions(model, digits):
    with runtimes.load(Model(model)) as runtime:
        return next(iter(runtime.run({"image": digits["image"]}).values()))


def value(row, metric):
    return row["metrics"][metric]["value"]


def test_metrics_of_every_format_match_scikit_learn(result, digits, digits_model, lite, noisy):
    content, labels = result.read(), digits["label"][:, 0]
    assert [row["format"] for row in content["models"]] == ["saved_model", "tflite", "keras", "keras"]
    for row, model in zip(content["models"], [digits_model, lite, noisy], strict=False):
        outputs = predictions(model, digits)
        assert row["error"] is None
        assert value(row, "accuracy") == pytest.approx(sk.accuracy_score(labels, outputs.argmax(1)), abs=1e-12)
        assert value(row, "top_2_accuracy") == pytest.approx(sk.top_k_accuracy_score(labels, outputs, k=2), abs=1e-12)
        assert value(row, "log_loss") == pytest.approx(sk.log_loss(labels, outputs), rel=1e-5)
    assert (content["task"], content["output_kind"]) == ("classification", "probabilities")
    assert content["counts"] == {"read": 397, "evaluated": 397, "skipped": 0, "skipped_because": {}, "distinct": 397}
    assert value(content["models"][2], "accuracy") < value(content["models"][0], "accuracy")


def test_slices_add_up_and_have_the_metrics_of_their_records(result, digits, lite):
    row = result.read()["models"][1]
    assert [part["value"] for part in row["slices"]] == list(range(10))
    assert sum(part["count"] for part in row["slices"]) == 397
    mean = sum(part["count"] * value(part, "log_loss") for part in row["slices"]) / 397
    assert mean == pytest.approx(value(row, "log_loss"), rel=1e-7)
    labels, classes = digits["label"][:, 0], predictions(lite, digits).argmax(1)
    for part in row["slices"]:
        assert value(part, "accuracy") == pytest.approx((classes == labels)[labels == part["value"]].mean(), abs=1e-9)
        assert (
            part["delta"]["accuracy"]["low"] <= part["delta"]["accuracy"]["value"] <= part["delta"]["accuracy"]["high"]
        )


def test_a_difference_lies_in_its_interval_and_is_zero_for_an_equal_model(result):
    baseline, _, noisy, copy = result.read()["models"]
    assert baseline["delta"] == baseline["parity"] == {}
    for row in (noisy, copy):
        for metric, delta in row["delta"].items():
            assert delta["value"] == pytest.approx(value(row, metric) - value(baseline, metric), abs=1e-12)
            assert delta["low"] <= delta["value"] <= delta["high"]
    assert noisy["delta"]["log_loss"]["low"] > 0, "the noise is significant"
    assert all(delta["value"] == 0 and delta["low"] < 0 < delta["high"] for delta in copy["delta"].values())


def test_intervals_hold_for_all_models_that_a_candidate_was_selected_from(run, noisy, tmp_path):
    one, nine = (run(candidates=[noisy], tried=tried, evaluation=tmp_path / str(tried)) for tried in (1, 9))
    assert [report["interval"].get("candidates", 1) for report in (one, nine)] == [1, 9]
    for kind in ("metrics", "delta"):
        narrow, wide = (report["models"][1][kind]["accuracy"] for report in (one, nine))
        assert wide["low"] < narrow["low"] < narrow["value"] == wide["value"]


def test_the_log_states_what_the_records_can_show(run, caplog):
    with caplog.at_level("INFO"):
        run()
    assert "397 records cannot exclude a loss of less than 0.92 points of accuracy, even if no record" in caplog.text


def test_the_same_files_as_the_baseline_have_nothing_to_prove(run):
    _, row = run()["models"]
    assert all(delta == {"value": 0, "low": 0, "high": 0, "unseen": 0} for delta in row["delta"].values())


def test_a_model_without_a_difference_may_lose_on_unseen_records(result):
    report = result.read()
    records, candidates = report["counts"]["evaluated"], report["interval"]["candidates"]
    assert candidates == 3
    loss = 1 - (0.05 / 3 / 2) ** (1 / records)
    delta = report["models"][3]["delta"]["accuracy"]
    assert (-delta["low"], delta["high"]) == pytest.approx((loss, loss), rel=1e-6)


def test_the_constant_model_is_evaluated_and_every_model_compared_with_it(result, digits):
    report = result.read()
    labels = digits["label"][:, 0]
    share = np.bincount(labels).max() / len(labels)
    constant = report["constant"]
    assert constant["name"].startswith("always class ")
    assert constant["metrics"]["accuracy"]["value"] == pytest.approx(share)
    for row in report["models"]:
        gain = row["over_constant"]["accuracy"]
        assert gain["value"] == pytest.approx(row["metrics"]["accuracy"]["value"] - share)
        assert 0 < gain["low"] < gain["value"] < gain["high"]


def test_parity_compares_the_outputs(result, digits, digits_model, lite):
    parent, child = predictions(digits_model, digits), predictions(lite, digits)
    parity = result.read()["models"][1]["parity"]
    error = np.abs(parent.astype(float) - child)
    # The same model in batches of 256 and of 397 may differ in the last bit of a float32.
    assert parity["max_abs_error"] == pytest.approx(error.max(), abs=1e-6)
    assert parity["mean_abs_error"] == pytest.approx(error.mean(), rel=1e-4, abs=1e-8)
    assert parity["agreement"] == (parent.argmax(1) == child.argmax(1)).mean()
    assert result.read()["models"][3]["parity"] == {"max_abs_error": 0, "mean_abs_error": 0, "agreement": 1}


def test_the_report_loads_as_a_typed_report_and_is_written_the_same_again(result):
    report = result.load()
    assert report.models[1].slices[3].value == 3
    assert dump(report) == result.read()
    assert next(iter(result.read())) == "schema_version"


def test_metadata_has_the_first_metric_of_each_model(result):
    names = [f"accuracy[{row['name']}]" for row in result.read()["models"]]
    assert list(result.metadata) == names


def test_a_failed_candidate_is_a_row_and_does_not_affect_the_others(run, tmp_path, digits_model, lite, result):
    broken, other = tmp_path / "broken.tflite", tmp_path / "other.keras"
    broken.write_bytes(lite.read_bytes()[:2000])
    nan = modified(digits_model, tmp_path / "nan.keras", nan=True)
    model_with("pixels", 10, height=9).save(other)
    narrow = tmp_path / "narrow.keras"
    model_with("image", 7).save(narrow)
    content = run(candidates=[broken, lite, nan, other, narrow], slices=["label"])
    rows = {row["name"]: row for row in content["models"]}
    assert "broken.tflite" in rows["broken.tflite"]["error"]
    assert rows["nan.keras"]["error"] == "NaN or infinity in 397 of 397 predictions"
    assert "no feature 'pixels'" in rows["other.keras"]["error"]
    assert "7 values a record (expected 10, as the baseline's)" in rows["narrow.keras"]["error"]
    for name in ("broken.tflite", "nan.keras", "other.keras", "narrow.keras"):
        assert rows[name]["metrics"] == rows[name]["delta"] == rows[name]["parity"] == {}
    alone = result.read()["models"][1]
    assert rows["lite.tflite"]["error"] is None
    assert value(rows["lite.tflite"], "log_loss") == value(alone, "log_loss")


def test_a_baseline_with_nan_is_refused(run, tmp_path, digits_model):
    nan = modified(digits_model, tmp_path / "nan.keras", nan=True)
    with pytest.raises(ComponentError, match=r"(?s)NaN or infinity in 256 .*finite outputs.*weights for NaN"):
        run(baseline=nan)
    assert not (tmp_path / "evaluation").exists()


@pytest.mark.parametrize(
    ("changes", "received", "fix"),
    [
        ({"label": "lable"}, "no label 'lable'", "did you mean label"),
        ({"split": "test"}, "split 'test' missing", "name another split"),
        ({"task": "regression"}, "output of 10 values a record", "pass the task"),
        ({"task": "binary"}, "output of 10 values a record", "pass the task"),
        ({"label": "image", "task": "classification"}, "10 values a record, label 'image' of 64", "task=regression"),
        ({"output": "digits"}, "no output 'digits'", "did you mean digit"),
        ({"slices": ["labels"]}, "no slice feature 'labels'", "did you mean label"),
        ({"slices": ["image"]}, "slice feature 'image' is float32", "as an integer"),
    ],
)
def test_parameters_that_do_not_fit_the_examples_or_the_model_are_refused(run, changes, received, fix):
    with pytest.raises(ComponentError) as refusal:
        run(**changes)
    assert refusal.match(f"(?s)received: .*{received}.*expected: .+how to fix: .*{fix}")


@pytest.mark.parametrize(
    ("labels", "received"),
    [
        (["three"] * 5, "label 'label' is text"),
        ([1, 2, 10, 3, 4], "label 'label' has the value 10"),
        ([1, -1, 2, 3, 4], "label 'label' has the value -1"),
    ],
)
def test_labels_that_are_not_a_class_of_the_model_are_refused(run, tmp_path, labels, received):
    write(tmp_path, {"image": np.ones((5, 64)), "label": np.array(labels)})
    with pytest.raises(ComponentError, match=f"(?s){received}.*expected: .*how to fix: "):
        run(examples=tmp_path / "examples")


def test_a_bad_label_after_the_first_batch_is_refused(run, tmp_path):
    write(tmp_path, {"image": np.ones((600, 64)), "label": np.r_[np.zeros(599, int), 12]})
    with pytest.raises(
        ComponentError, match=r"(?s)label 'label' has the value 12.*class from 0 to 9.*number the classes"
    ):
        run(examples=tmp_path / "examples")


def test_a_model_whose_input_is_no_feature_is_refused_with_the_nearest_name(run, tmp_path):
    model_with("images", 10, height=9).save(tmp_path / "other.keras")
    with pytest.raises(ComponentError, match=r"(?s)no feature 'images'.*did you mean image"):
        run(baseline=tmp_path / "other.keras")


def test_a_model_with_several_outputs_needs_the_output_parameter(run, tmp_path, digits_model):
    import keras

    image = keras.layers.Input((8, 8, 1), name="image")
    flow = keras.layers.Flatten()(image)
    heads = {name: keras.layers.Dense(10, name=name)(flow) for name in ("digit", "again")}
    keras.Model(image, heads).save(tmp_path / "two.keras")
    with pytest.raises(ComponentError, match=r"(?s)2 outputs.*one of .*digit.*pass output=NAME"):
        run(baseline=tmp_path / "two.keras", candidates=[digits_model])
    content = run(baseline=tmp_path / "two.keras", candidates=[digits_model], output="digit")
    assert content["output"] == "digit"
    assert content["output_kind"] == "logits"
    assert content["models"][1]["error"] is None


def test_an_empty_split_and_a_damaged_shard_are_refused(run, tmp_path, digits_examples):
    write(tmp_path, {"image": np.ones((0, 64)), "label": np.ones(0, int)})
    with pytest.raises(ComponentError, match=r"(?s)no records.*prepare the examples again"):
        run(examples=tmp_path / "examples")
    shutil.copytree(digits_examples, tmp_path / "cut")
    shard = next((tmp_path / "cut" / "Split-eval").iterdir())
    shard.write_bytes(shard.read_bytes()[:-4000])
    with pytest.raises(ComponentError, match=r"(?s)damaged.*a complete TFRecord file.*write the examples again"):
        run(examples=tmp_path / "cut")


@pytest.mark.parametrize("counted", [False, True])
def test_a_shard_cut_between_two_records_is_refused(run, tmp_path, digits_examples, counted):
    folder = tmp_path / "examples"
    shutil.copytree(digits_examples, folder)
    left = cut_between_records(folder / "Split-train" / "data_tfrecord-00000-of-00002.gz")
    if counted:  # the manifest agrees with the truncated file
        (folder / "examples.json").write_text(json.dumps({"splits": {"train": 700 + left}}))
    error = r"(?s)00000-of-00002.gz: damaged.*a complete TFRecord file.*write the examples again"
    with pytest.raises(ComponentError, match=error):
        run(examples=folder, split="train")


def test_every_reader_of_a_part_detects_a_truncated_file(tmp_path):
    file = tmp_path / "a.gz"
    write_examples(file, {"label": np.arange(100)})
    whole = [list(read_part(str(file), part, 3, 8)) for part in range(3)]
    assert [[index for index, _ in batches] for batches in whole] == [[0, 3, 6, 9, 12], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert sum(len(batch) for batches in whole for _, batch in batches) == 100
    cut_between_records(file)
    for part in range(3):
        with pytest.raises(ComponentError, match=r"a\.gz: damaged"):
            list(read_part(str(file), part, 3, 8))


def test_unusable_records_are_skipped_and_counted_by_reason(run, tmp_path, digits):
    import tensorflow as tf

    write(tmp_path, {"image": digits["image"].reshape(397, -1), "label": digits["label"]})
    shard = tmp_path / "examples" / "Split-eval" / "more_tfrecord"
    write_examples(shard, {"image": digits["image"].reshape(397, -1)[:3]})
    whole = list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in (*whole, b"not an example at all", whole[0][:100]):
            writer.write(record)
    content = run(examples=tmp_path / "examples", max_skipped=0.02)
    assert content["counts"]["skipped_because"] == {"no label": 3, "not a tf.Example": 2}
    assert content["counts"]["read"] == 402
    assert content["counts"]["evaluated"] == 397
    assert value(content["models"][0], "accuracy") > 0.9


def test_a_missing_shard_fails_the_step(run, tmp_path, digits_examples):
    folder = tmp_path / "examples"
    shutil.copytree(digits_examples, folder)
    (folder / "examples.json").write_text(json.dumps({"splits": {"train": 1400, "eval": 397}}))
    assert run(examples=folder, split="train")["counts"]["read"] == 1400
    next((folder / "Split-train").glob("*00001-of*")).unlink()
    with pytest.raises(
        ComponentError, match=r"(?s)700 records read.*the 1400 that the split holds.*files have changed"
    ):
        run(examples=folder, split="train", evaluation=tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_regression_is_detected_by_the_float_label_and_reports_errors(run, tmp_path):
    import keras

    generator = np.random.default_rng(0)
    images = generator.random((700, 64))
    target = images[:, :2] * 3e-6  # as small as in some physical units, to detect rounding
    write(tmp_path, {"image": images, "label": target})
    image = keras.layers.Input((8, 8, 1), name="image")
    dense = keras.layers.Dense(2, name="amount")
    model = keras.Model(image, dense(keras.layers.Flatten()(image)))
    kernel = np.zeros((64, 2))
    kernel[[0, 1], [0, 1]] = 2e-6
    dense.set_weights([kernel, np.zeros(2)])
    model.save(tmp_path / "amount.keras")
    content = run(
        baseline=tmp_path / "amount.keras", candidates=[tmp_path / "amount.keras"], examples=tmp_path / "examples"
    )
    assert (content["task"], content["output_kind"]) == ("regression", "numbers")
    outputs = images.astype(np.float32)[:, :2] * 2e-6
    row = content["models"][1]
    assert value(row, "mean_absolute_error") == pytest.approx(sk.mean_absolute_error(target, outputs), rel=1e-5)
    assert value(row, "mean_squared_error") == pytest.approx(sk.mean_squared_error(target, outputs), rel=1e-5)
    assert row["metrics"]["mean_squared_error"]["higher_is_better"] is False
    assert row["parity"]["agreement"] is None
    assert row["name"] == "amount.keras (2)"


def test_a_model_with_a_fixed_batch_size_predicts_every_record(run, tmp_path, digits_model):
    import tensorflow as tf

    loaded = tf.saved_model.load(digits_model / "Format-Serving")
    spec = tf.TensorSpec([100, 8, 8, 1], tf.float32, name="image")
    serve = tf.function(lambda image: loaded.signatures["serving_default"](image=image), input_signature=[spec])
    module = tf.Module()
    module.loaded = loaded
    tf.saved_model.save(module, str(tmp_path / "fixed"), signatures=serve.get_concrete_function())
    row = run(candidates=[tmp_path / "fixed"])["models"][1]
    assert row["error"] is None
    assert row["parity"]["max_abs_error"] < 1e-6
    assert row["parity"]["agreement"] == 1


def test_a_scalar_input_needs_one_value_for_all_records_of_a_batch(tmp_path):
    model = saved(tmp_path / "model", lambda a, x: {"y": x * a}, a=([], "float32"), x=([None, 2], "float32"))
    columns = {"a": np.full((3, 1), 4, np.float32), "x": np.ones((3, 2), np.float32)}
    runtime = runtimes.load(Model(model))
    assert predict(runtime, columns, "y").tolist() == [[4, 4]] * 3
    columns["a"][1] = 5
    with pytest.raises(ComponentError, match="one value for all of a batch"):
        predict(runtime, columns, "y")


def write(folder, columns):
    file = folder / "examples" / "Split-eval" / "data_tfrecord-00000-of-00001.gz"
    write_examples(file, columns)


def model_with(name, classes, height=8):
    import keras

    image = keras.layers.Input((height, 8, 1), name=name)
    dense = keras.layers.Dense(classes, activation="softmax", name="digit")
    return keras.Model(image, dense(keras.layers.Flatten()(image)))


@pytest.mark.nightly
def test_large_models_and_those_on_a_gpu_are_evaluated_in_a_process_of_their_own_during_a_run(
    digits_model, digits_lite, digits_examples, tmp_path, monkeypatch
):
    inputs = {"baseline": digits_model, "candidates": [digits_lite], "examples": digits_examples, "label": "label"}
    here = evaluate(**inputs, evaluation=tmp_path / "here")["evaluation"].load()
    monkeypatch.delattr(beam_pipeline, "evaluate_models")  # in this process
    inputs["trust_model_code"] = True  # others always have one
    with preloading(is_run=True):
        for name, value in (("LARGE", 0), ("gpu_count", lambda: 1)):
            with monkeypatch.context() as patch:
                patch.setattr(component, name, value)
                fork = evaluate(**inputs, evaluation=tmp_path / name)["evaluation"].load()
            assert [model.metrics for model in fork.models] == [model.metrics for model in here.models]


def abort_in_16_bits(folder):
    """Write a LiteRT file that ends its process in its first call: a norm of zeros has a scale of zero."""
    import tensorflow as tf
    import tf_keras

    image = tf_keras.Input((8, 8, 1), name="image")
    flow = tf_keras.layers.LayerNormalization()(tf_keras.layers.Reshape((8, 8))(image))
    flow = tf_keras.layers.Dense(10, "softmax", name="digit")(tf_keras.layers.Flatten()(flow))
    converter = tf.lite.TFLiteConverter.from_keras_model(tf_keras.Model(image, flow))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    draw = np.random.default_rng(0)
    converter.representative_dataset = lambda: ([draw.random((1, 8, 8, 1), np.float32)] for _ in range(8))
    kinds = tf.lite.OpsSet
    converter.target_spec.supported_ops = [kinds.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]
    (folder / "aborts.tflite").write_bytes(converter.convert())
    return folder / "aborts.tflite"


@pytest.mark.nightly
def test_a_candidate_that_ends_the_process_is_a_row_with_the_reason(
    digits_model, digits_lite, digits_examples, tmp_path
):
    candidates = [digits_lite, abort_in_16_bits(tmp_path), digits_model]
    inputs = {"baseline": digits_model, "examples": digits_examples, "label": "label"}
    with preloading(is_run=True):
        report = evaluate(candidates=candidates, evaluation=tmp_path / "all", **inputs)["evaluation"].load()
    _, lite, aborted, copy = report.models
    assert "the process was killed by SIGABRT" in aborted.error and not aborted.metrics
    assert not any(model.error for model in report.models if model is not aborted)
    assert lite.metrics["accuracy"].value > 0.9 and copy.metrics["accuracy"].value > 0.9
