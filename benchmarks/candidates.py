"""Files that eight peers and tfopt make of a model of peer_models.py, each peer with its documented settings.

A peer is a function that yields the names of its files and functions that write them. All get the same records of the
split ``train`` for calibration, and the split ``eval`` to choose on. A file that cannot be made is an error in the
result. Each peer works in a process of its own.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from peer_models import build_compiled, read_splits, training_data

from tfopt.error_messages import first_line

Batch = dict[str, Any]
File = tuple[str, Callable[[Path], object]]  # the name of a file, and the function that writes it
MIX = "tflite auto"
OTHER_BITS = ("tflite int16x8", "tflite int4", MIX)  # for the table of equal bits, and the mix
NARROW = {  # the share of the FLOPs that `prune` removes with channels, and whether the network is its teacher
    "half the FLOPs": (0.5, False),
    "a quarter of the FLOPs": (0.75, False),
    "half the FLOPs with a teacher": (0.5, True),
    "a quarter of the FLOPs with a teacher": (0.75, True),
}
NARROW_FILES = (
    *("tflite int8", "tflite dynamic", "tflite float32"),
    *("onnx int8", "onnx dynamic", "onnx float32", "openvino float32", "openvino int8"),
)
EPOCHS = 10  # of the training after the removal
MODULE = """import sys

sys.path.insert(0, {benchmarks!r})
from peer_models import build_compiled


def build_model():
    return build_compiled({name!r})
"""


@dataclass(frozen=True)
class Source:
    """A model with its examples, as peers read them."""

    name: str
    folder: Path

    @property
    def plain(self) -> str:
        """The SavedModel."""
        return str(self.folder / "plain")

    @cached_property
    def feed(self) -> list[Batch]:
        """The records on which tfopt calibrates, one in each batch."""
        from tfopt import runtimes  # imports TensorFlow
        from tfopt.artifacts import Examples, SavedModel
        from tfopt.conversion.calibration import sample_inputs
        from tfopt.conversion.parameters import Calibration
        from tfopt.data.sample_inputs import split_batches

        with runtimes.load(SavedModel(self.plain)) as plain:
            examples, specs = Examples(self.folder / "examples"), plain.inputs
        sampled, _ = sample_inputs(examples, specs, Calibration())
        return list(split_batches(sampled, specs, 1))

    @property
    def is_transformer(self) -> bool:
        """True if the settings for transformers apply."""
        return self.name in ("transformer", "MobileViT-like")

    def read(self, split: str, size: int) -> list[Batch]:
        """Return the inputs of a split in batches."""
        from tfopt import runtimes  # imports TensorFlow
        from tfopt.artifacts import Examples, SavedModel
        from tfopt.data.batches import read_batches

        with runtimes.load(SavedModel(self.plain)) as plain:
            return list(read_batches(Examples(self.folder / "examples").split(split), plain.inputs, batch_size=size))

    def labels(self, split: str) -> Any:
        """Return the labels of a split."""
        import tensorflow as tf

        files = map(str, (self.folder / "examples" / f"Split-{split}").iterdir())
        records = tf.data.TFRecordDataset(list(files), "GZIP")
        examples = [tf.train.Example.FromString(record.numpy()) for record in records]
        return np.array([example.features.feature["label"].int64_list.value for example in examples])


def tensorflow_xla(source: Source) -> Iterator[File]:
    """TensorFlow with oneDNN, as everywhere here, and the whole signature compiled by XLA."""

    def write(file: Path) -> None:
        import tensorflow as tf

        module = tf.Module()
        module.loaded = tf.saved_model.load(source.plain)
        signature = module.loaded.signatures["serving_default"]
        call = tf.function(lambda **inputs: signature(**inputs), jit_compile=True)
        concrete = call.get_concrete_function(**signature.structured_input_signature[1])
        tf.saved_model.save(module, str(file), signatures=concrete)

    yield "xla", write


def tf_lite(source: Source) -> Iterator[File]:
    """tf.lite's converter, for LiteRT with XNNPACK: float32, 8-bit weights, and int8 with a representative data set."""
    yield "float32.tflite", lambda file: file.write_bytes(convert_lite(source.plain, source, None))
    yield "dynamic.tflite", lambda file: file.write_bytes(convert_lite(source.plain, source, []))
    yield "int8.tflite", lambda file: file.write_bytes(convert_lite(source.plain, source, source.feed))
    yield "int16x8.tflite", lambda file: file.write_bytes(convert_lite(source.plain, source, source.feed, bits=16))


def convert_lite(model: str, source: Source, feed: list[Batch] | None, bits: int = 8) -> bytes:
    """Convert a SavedModel; if it has loops, with one record in a call, as the converter's guide to RNNs recommends."""
    import tensorflow as tf

    def convert(folder: str) -> bytes:
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if feed is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if feed:
            converter.representative_dataset = lambda: iter(feed)
        if bits == 16:
            kinds = tf.lite.OpsSet
            in_16_bits = kinds.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
            converter.target_spec.supported_ops = [in_16_bits, kinds.TFLITE_BUILTINS]
        return bytes(converter.convert())

    if source.name not in ("LSTM", "GRU text"):
        return convert(model)
    fixed = str(source.folder / f"{Path(model).name}, one record")
    if not Path(fixed).exists():
        loaded = tf.saved_model.load(model)
        signature = loaded.signatures["serving_default"]
        specs = signature.structured_input_signature[1]
        ones = {name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype, name=name) for name, spec in specs.items()}
        call = tf.function(lambda **inputs: signature(**inputs)).get_concrete_function(**ones)
        tf.saved_model.save(loaded, fixed, signatures=call)
    return convert(fixed)


def ai_edge_quantizer(source: Source) -> Iterator[File]:
    """ai-edge-quantizer's recipes for the float file of tf.lite."""
    from ai_edge_quantizer import quantizer, recipe

    floats = source.folder / "aeq-float32.tflite"
    floats.write_bytes(convert_lite(source.plain, source, None))

    def write(name: str, is_static: bool, file: Path) -> None:
        quantizing = quantizer.Quantizer(str(floats), getattr(recipe, name)())
        ranges = quantizing.calibrate({"serving_default": source.feed}) if is_static else None
        quantizing.quantize(ranges).export_model(str(file), overwrite=True)

    yield "dynamic.tflite", partial(write, "dynamic_wi8_afp32", False)
    yield "int8.tflite", partial(write, "static_wi8_ai8", True)
    yield "int16x8.tflite", partial(write, "static_wi8_ai16", True)
    yield "int4.tflite", partial(write, "dynamic_wi4_afp32", False)


def convert_onnx(source: Source, file: Path) -> None:
    """Convert the SavedModel with tf2onnx."""
    arguments = ["-m", "tf2onnx.convert", "--saved-model", source.plain, "--output", str(file)]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])


def tf2onnx(source: Source) -> Iterator[File]:
    """tf2onnx, float32 for ONNX Runtime."""
    yield "float32.onnx", partial(convert_onnx, source)


def onnx_runtime(source: Source) -> Iterator[File]:
    """ONNX Runtime's quantizer after its preprocessing: static with 7-bit weights on CPUs without VNNI, and dynamic."""
    import onnxruntime.quantization as ort

    from tfopt.conversion.int8_overflow import needs_reduced_range

    floats, prepared = source.folder / "ort-float32.onnx", source.folder / "ort-prepared.onnx"
    convert_onnx(source, floats)
    ort.quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)

    class Reader(ort.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter(source.feed)

        def get_next(self) -> Batch | None:
            return next(self.batches, None)

    def write_static(file: Path) -> None:
        options = {"per_channel": True, "reduce_range": needs_reduced_range()}
        ort.quantize_static(str(prepared), str(file), Reader(), quant_format=ort.QuantFormat.QDQ, **options)

    def write_int4(file: Path) -> None:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # imports onnx_ir

        quantizer = MatMulNBitsQuantizer(onnx.load(str(prepared)), block_size=32, is_symmetric=True)
        quantizer.process()
        quantizer.model.save_model_to_file(str(file))

    yield "int8.onnx", write_static
    yield "dynamic.onnx", lambda file: ort.quantize_dynamic(str(prepared), str(file), per_channel=True)
    yield "int4.onnx", write_int4


def openvino(source: Source) -> Iterator[File]:
    """OpenVINO's converter; the runtime has the latency hint. Compressed to float16, as by default, and not."""
    from tfopt.runtimes.openvino_import import openvino as ov  # imports OpenVINO

    yield "float16.xml", lambda file: ov.save_model(ov.convert_model(source.plain), file)
    yield "float32.xml", lambda file: ov.save_model(ov.convert_model(source.plain), file, compress_to_fp16=False)


def nncf(source: Source) -> Iterator[File]:
    """NNCF on OpenVINO's model: int8, int8 with accuracy control on the split ``eval``, and 4-bit weights."""
    from tfopt.runtimes.openvino_import import openvino as ov  # imports OpenVINO
    from tfopt.runtimes.openvino_import import without_telemetry

    with without_telemetry():
        import nncf as library

    kind = library.ModelType.TRANSFORMER if source.is_transformer else None
    calibration = library.Dataset(source.feed)

    def write_int8(file: Path) -> None:
        ov.save_model(library.quantize(ov.convert_model(source.plain), calibration, model_type=kind), file)

    def validate(compiled: Any, batches: Any) -> tuple[float, None]:
        outputs = np.concatenate([next(iter(compiled(batch).values())) for batch in batches])
        labels = source.labels("eval")
        right = outputs.argmax(axis=1) == labels[:, 0] if labels.shape[1] == 1 else (outputs > 0.5) == labels
        return float(right.mean()), None

    def write_controlled(file: Path) -> None:
        held_out = library.Dataset(source.read("eval", 1))
        ov.save_model(
            library.quantize_with_accuracy_control(
                ov.convert_model(source.plain), calibration, held_out, validate, max_drop=0.01, model_type=kind
            ),
            file,
        )

    def write_int4(file: Path) -> None:
        mode = library.CompressWeightsMode.INT4_SYM
        options = {"group_size": -1, "all_layers": True, "dataset": calibration}
        ov.save_model(library.compress_weights(ov.convert_model(source.plain), mode=mode, **options), file)

    yield "int8.xml", write_int8
    yield "controlled int8.xml", write_controlled
    yield "int4.xml", write_int4


def tfmot(source: Source) -> Iterator[File]:
    """TFMOT's quantization-aware training for two epochs from the trained weights, then tf.lite's converter."""

    def write(file: Path) -> None:
        import tensorflow_model_optimization as library

        model = build_compiled(source.name)
        model.load_weights(str(source.folder / "weights.h5"))
        trained = library.quantization.keras.quantize_model(model)
        trained.compile("adam", model.loss)
        trained.optimizer.learning_rate = 1e-4
        inputs, labels = training_data(model, read_splits(source.name)["train"])
        trained.fit(inputs, labels, 64, 2, verbose=0)
        trained.save(str(source.folder / "qat"), save_format="tf")
        file.write_bytes(convert_lite(str(source.folder / "qat"), source, []))

    yield "int8.tflite", write


PEERS = {
    "tensorflow, xla": tensorflow_xla,
    "tf.lite": tf_lite,
    "ai-edge-quantizer": ai_edge_quantizer,
    "tf2onnx": tf2onnx,
    "onnxruntime": onnx_runtime,
    "openvino": openvino,
    "nncf": nncf,
    "tfmot": tfmot,
}


def convert_with_peers(name: str, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Make the files of all peers; return them by name, and the errors of those that could not be made."""
    from tfopt.errors import ComponentError
    from tfopt.processes.subprocess_call import run_in_child

    files: dict[str, Path] = {}
    errors: dict[str, str] = {}
    for peer in PEERS:
        try:
            made, failed = run_in_child(make_files, peer, name, folder, doing=f"converting with {peer}", limit_s=1800)
            files |= made
            errors |= failed
        except ComponentError as error:  # the process died
            errors[peer] = error.received
    return files, errors


def make_files(peer: str, name: str, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Make the files of a peer in this process."""
    files: dict[str, Path] = {}
    errors: dict[str, str] = {}
    try:
        for file, write in PEERS[peer](Source(name, folder)):
            target = folder / f"peer {peer}" / file
            target.parent.mkdir(exist_ok=True)
            try:
                write(target)
                files[f"{peer}: {target.stem}"] = target
            except Exception as error:  # their exceptions share no base
                errors[f"{peer}: {target.stem}"] = first_line(error)[:200]
    except Exception as error:
        errors[peer] = first_line(error)[:200]
    return files, errors


def make_candidates(name: str, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Make the candidates of `pipelines/optimize.py` and of `pipelines/shrink.py`; return them and the errors.

    `prune` removes channels with a share of the FLOPs and trains the others, with the network as the teacher and
    without.
    """
    from tfopt.component import find
    from tfopt.errors import ComponentError
    from tfopt.pipelines import optimize

    examples = folder / "examples"
    made, errors = convert_with_tfopt(folder / "plain", examples, folder, (*optimize.CANDIDATES, *OTHER_BITS))
    module = write_module(name, folder)
    for title, (share, has_teacher) in NARROW.items():
        target = folder / title
        shutil.rmtree(target, ignore_errors=True)
        options = {"pattern": "channel", "sparsity": share, "epochs": EPOCHS}
        options |= {"teacher": folder / "plain"} if has_teacher else {}
        try:
            find("prune")(model=folder / "plain", examples=examples, module=module, pruned=target / "pruned", **options)
        except ComponentError as error:
            errors[title] = first_line(error)
            continue
        files, failed = convert_with_tfopt(target / "pruned", examples, target, NARROW_FILES)
        made |= {f"{title}, {file}": path for file, path in files.items()}
        errors |= {f"{title}, {file}": error for file, error in failed.items()}
    return made, errors


def write_module(name: str, folder: Path) -> Path:
    """Write the module with which a network is trained after the removal of channels."""
    module = folder / "module.py"
    module.write_text(MODULE.format(benchmarks=str(Path(__file__).parent), name=name))
    return module


def convert_with_tfopt(
    model: Path, examples: Path, folder: Path, names: tuple[str, ...]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Make candidates of a model, by the names of `pipelines/optimize.py`; return them and the errors."""
    from tfopt.component import find
    from tfopt.pipelines import optimize

    class ImmediateSteps:
        """Steps that run at once instead of being traced."""

        def __getattr__(self, name_of_step: str) -> Callable[..., Any]:
            component = find(name_of_step)
            (output,) = component.outputs

            def run(id: str = name_of_step, **arguments: Any) -> SimpleNamespace:
                if arguments.get("precision") == "auto":
                    arguments["max_degradation"] = 0.01  # `evaluate` judges the loss
                target = folder / id
                shutil.rmtree(target, ignore_errors=True)
                return SimpleNamespace(outputs=component(**arguments, **{output: target}))

            return run

    steps: Any = ImmediateSteps()
    models: list[Any] = optimize.make_candidates(steps, model, examples, names)
    errors = {name: artifact.failure for name, artifact in zip(names, models, strict=True)}
    made = {name: artifact.path for name, artifact in zip(names, models, strict=True) if not errors[name]}
    return made, {name: str(error) for name, error in errors.items() if error}
