"""Selection of a winner in each format, a push by TFX's own Pusher, and the folders loaded as their servers do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Blessing, Decision, Model

PREPROCESSING = "Format-Preprocessing"


def select_and_push(
    model: Any, candidates: Mapping[str, Any], examples: Any, label: str, folder: Path, winners: tuple[str, ...]
) -> list[Any]:
    """Return the steps that evaluate candidates by format, and measure, select and push each winner of its own."""
    from tfx.components import Pusher
    from tfx.proto.pusher_pb2 import PushDestination

    from tfopt.tfx import steps

    compared = {"baseline": model, "examples": examples}
    evaluated = steps.evaluate(**compared, candidates=list(candidates.values()), label=label)
    measured = steps.benchmark(
        **compared, candidates=[candidates[name] for name in winners], seconds=0.1, rounds=8, batch_sizes=["1"]
    )
    nodes = [evaluated, measured]
    for winner in winners:
        selected = steps.select_model(
            baseline=model,
            candidates=[candidates[winner]],
            evaluation=evaluated.outputs["evaluation"],
            benchmark=measured.outputs["benchmark"],
            goals=["accuracy max_degradation 100%"],
            objective="size",
            better_than_constant=False,
        ).with_id(f"select_{winner}")
        place = PushDestination.Filesystem(base_directory=str(folder / f"pushed_{winner}"))
        pusher = Pusher(
            model=selected.outputs["selected"],
            model_blessing=selected.outputs["blessing"],
            push_destination=PushDestination(filesystem=place),
        ).with_id(f"pushed_{winner}")
        nodes += [selected, pusher]
    return nodes


def check_pushed(artifacts: Path, pushed: Path, winner: str, candidate: Model, records: list[bytes]) -> None:
    """Check what Pusher wrote against the decision: format, files, size, digest, and the outputs of its server.

    A model of two parts is not pushed, and is checked where it was selected.
    """
    selected, decision, blessing = (
        next((artifacts / f"select_{winner}" / name).iterdir()) for name in ("selected", "decision", "blessing")
    )
    report, served = Decision(decision).load(), selected / "Format-Serving"
    assert (report.blessed, report.chosen.format, report.chosen.digest) == (True, winner, candidate.digest)
    assert Model(selected).digest == report.selected_digest
    if (served / PREPROCESSING).is_dir():
        assert not pushed.exists()
        assert (blessing / "NOT_BLESSED").is_file()
        assert "TFX's Pusher may not push" in report.notes[-1]
        assert Blessing(blessing).load().blessed  # for push_model
    else:
        (version,) = pushed.iterdir()
        assert Model(version).digest == Model(served).digest
        served = version
    files = [file for file in served.rglob("*") if file.is_file()]
    assert sorted(Model(served).payload()) == sorted(files)
    assert Model(served).sizes()["raw"] == report.chosen.metrics["size"]
    with runtimes.load(candidate) as runtime:
        takes_records = "examples" in runtime.inputs
        batch = {"examples": np.array(records, object)} if takes_records else parse_features(served, records)
        (expected,) = runtime.run(batch).values()
    (output,) = serve(served, records).values()
    np.testing.assert_allclose(output, expected, atol=1e-6)


def serve(version: Path, records: list[bytes]) -> Mapping[str, NDArray[Any]]:
    """Load a pushed folder with nothing of tfopt, as the server of its format does, and return the outputs."""
    import tensorflow as tf

    if (version / "saved_model.pb").is_file():
        outputs = tf.saved_model.load(str(version)).signatures["serving_default"](examples=tf.constant(records))
        return {name: value.numpy() for name, value in outputs.items()}
    inputs = parse_features(version, records)
    if (version / "tflite").is_file():
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(str(version / "tflite")).get_signature_runner("serving_default")(**inputs)
    if (version / "model.onnx").is_file():
        import onnxruntime

        session = onnxruntime.InferenceSession(str(version / "model.onnx"))
        return dict(zip((output.name for output in session.get_outputs()), session.run(None, inputs), strict=True))
    if (version / "model.xml").is_file():
        import openvino

        # The default of CPUs with such instructions is bfloat16.
        compiled = openvino.compile_model(str(version / "model.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return {output.any_name: value for output, value in compiled(inputs).items()}
    import keras

    return {"": keras.models.load_model(version / "model.keras").predict(inputs, verbose=0)}


def parse_features(version: Path, records: list[bytes]) -> dict[str, NDArray[Any]]:
    """Return what a file takes: the features of the records, prepared if it has a preprocessing."""
    import tensorflow as tf

    from tests.stock_trainer import FEATURES

    if (version / PREPROCESSING).is_dir():
        preprocessing = tf.saved_model.load(str(version / PREPROCESSING)).signatures["serving_default"]
        prepared = preprocessing(examples=tf.constant(records))
    else:
        prepared = tf.io.parse_example(records, {name: tf.io.FixedLenFeature([1], tf.float32) for name in FEATURES})
    return {name: value.numpy() for name, value in prepared.items()}


def read_records(file: Path, count: int) -> list[bytes]:
    """Return the first records of a file of CsvExampleGen."""
    import tensorflow as tf

    return list(tf.data.TFRecordDataset(str(file), compression_type="GZIP").take(count).as_numpy_iterator())
