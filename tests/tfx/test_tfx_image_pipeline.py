"""Test a pipeline of images as TFX's CIFAR-10 example builds it, with our steps between the Trainer and the Pusher."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tfx.image_trainer import IMAGE, LABEL
from tfopt.artifacts import Evaluation, Model

pytestmark = pytest.mark.nightly


def write_images(folder: Path) -> None:
    """Write the 8 x 8 digits of scikit-learn as PNGs in serialized tf.Examples, in the splits train and eval."""
    import tensorflow as tf
    from sklearn.datasets import load_digits

    def example(image: np.ndarray, label: int) -> bytes:
        png = tf.io.encode_png(np.uint8(image.reshape(8, 8, 1) * 15)).numpy()
        features = {
            IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
            LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    for split, rows in (("train", order[:1400]), ("eval", order[1400:])):
        (folder / split).mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / split / "digits.tfrecord")) as writer:
            for row in rows:
                writer.write(example(images[row], labels[row]))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> SimpleNamespace:
    """Run the pipeline on Beam; return its folder and the newest output of each step."""
    import tensorflow_model_analysis as tfma
    from tfx.components import Evaluator, ImportExampleGen, Pusher, SchemaGen, StatisticsGen, Trainer, Transform
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner
    from tfx.proto import example_gen_pb2, pusher_pb2, trainer_pb2

    from tfopt.tfx import steps

    folder = tmp_path_factory.mktemp("images")
    write_images(folder / "records")
    splits = [example_gen_pb2.Input.Split(name=name, pattern=f"{name}/*") for name in ("train", "eval")]
    generated = ImportExampleGen(str(folder / "records"), input_config=example_gen_pb2.Input(splits=splits))
    examples = generated.outputs["examples"]
    statistics = StatisticsGen(examples=examples)
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    user_code = "tests.tfx.image_trainer"
    transform = Transform(
        examples=examples, schema=schema.outputs["schema"], preprocessing_fn=f"{user_code}.preprocessing_fn"
    )
    trainer = Trainer(
        run_fn=f"{user_code}.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        train_args=trainer_pb2.TrainArgs(num_steps=1),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
    )
    model = trainer.outputs["model"]
    folded = steps.fold_batch_norm(model=model, examples=examples)
    fast = folded.outputs["folded"]
    lite = steps.export_tflite(model=fast, examples=examples, precision="int8")
    onnx = steps.export_onnx(model=fast, examples=examples)
    openvino = steps.export_openvino(model=fast, examples=examples)
    candidates = [fast, *(step.outputs["exported"] for step in (lite, onnx, openvino))]
    evaluated = steps.evaluate(baseline=model, candidates=candidates, examples=examples, label=LABEL)
    bound = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.5}))
    metric = tfma.MetricConfig(class_name="SparseCategoricalAccuracy", threshold=bound)
    evaluator = Evaluator(
        examples=examples,
        model=fast,
        eval_config=tfma.EvalConfig(
            model_specs=[tfma.ModelSpec(label_key=LABEL, signature_name="serving_default")],
            slicing_specs=[tfma.SlicingSpec()],
            metrics_specs=[tfma.MetricsSpec(metrics=[metric])],
        ),
    )
    place = pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / "pushed"))
    pusher = Pusher(
        model=fast,
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=place),
    )
    stock = [generated, statistics, schema, transform, trainer, evaluator, pusher]
    BeamDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="images",
            pipeline_root=str(folder / "artifacts"),
            components=[*stock, folded, lite, onnx, openvino, evaluated],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
        )
    )

    def output(step: str, name: str) -> Path:
        return max((folder / "artifacts" / step / name).iterdir(), key=lambda path: int(path.name))

    return SimpleNamespace(folder=folder, output=output)


def test_all_formats_take_the_records_with_images(run):
    rows = Evaluation(run.output("evaluate", "evaluation")).load().models
    assert [row.error for row in rows] == [None] * 5
    baseline, folded, lite, onnx, openvino = (row.metrics["accuracy"].value for row in rows)
    assert baseline > 0.85
    assert folded == onnx == openvino == baseline
    assert abs(lite - baseline) < 0.02


def test_the_decoding_stays_in_a_saved_model_beside_the_exported_layers(run):
    for step in ("export_tflite", "export_onnx", "export_openvino"):
        cut = Model(run.output(step, "exported")).card.facts["cut"]
        assert cut["core_inputs"] == "image: float32[?,8,8,1]"  # decoded; the core enlarges and scales
        assert cut["ops"]["StatelessWhile"] == 1  # it decodes one image after the other


def test_stock_evaluator_blesses_the_folded_model_and_stock_pusher_pushes_it(run):
    assert Model(run.output("fold_batch_norm", "folded")).card.facts["folded"] == 1
    assert (run.output("Evaluator", "blessing") / "BLESSED").is_file()
    assert list((run.folder / "pushed").glob("*/saved_model.pb"))
