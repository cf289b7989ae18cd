"""Small models of the architectures in Keras Hub, exported in each format and precision and compared with the parent.

    pip install --no-deps --target PACKAGES keras-hub kagglehub kagglesdk tokenizers sentencepiece regex huggingface-hub
    PYTHONPATH=PACKAGES python benchmarks/keras_hub_models.py --folder F                  # all; most of an hour
    PYTHONPATH=PACKAGES python benchmarks/keras_hub_models.py --models gemma t5 --exports "tflite int8" "onnx int8"

Two layers of width 16 with random weights, a mean over the tokens or pixels, and a softmax of five classes; numbers of
tokens are open, and a third of the tokens is masked. So a cell says whether the operations of an architecture are
converted, and how far the outputs correlate with the parent's on 60 records; it says nothing about accuracy. A trained
model of its size loses less in 8 bits.
"""

import argparse
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.errors import ComponentError

WORDS, LENGTH, WIDTH, SIDE = 50, 12, 16, 32
RECORDS = {"train": 40, "eval": 60}
NOISE = 0.15  # added to each weight, so that norms have statistics
LIMIT = 0.05  # max_degradation of mixes
BLOCKS = {"num_layers": 2, "hidden_dim": WIDTH, "intermediate_dim": 2 * WIDTH}
TOKENS = {"vocabulary_size": WORDS, "num_heads": 2, **BLOCKS}
FIXED = {**TOKENS, "max_sequence_length": LENGTH}
GROUPED = {"vocabulary_size": WORDS, "num_query_heads": 4, "num_key_value_heads": 2, **BLOCKS}
IMAGE = {"image_shape": (SIDE, SIDE, 3)}
PATCHES = {**IMAGE, "patch_size": (8, 8), "num_layers": 2, "num_heads": 2, "hidden_dim": WIDTH}
# The name of the class without "Backbone", and its arguments.
ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "albert": ("Albert", {**FIXED, "embedding_dim": 8}),
    "bart": ("Bart", FIXED),
    "bert": ("Bert", FIXED),
    "bloom": ("Bloom", TOKENS),
    "deberta": ("DebertaV3", {**FIXED, "bucket_size": 8}),
    "deit": ("DeiT", {**PATCHES, "intermediate_dim": 2 * WIDTH}),
    "densenet": (
        "DenseNet",
        {**IMAGE, "stackwise_num_repeats": [2, 2], "compression_ratio": 0.5, "growth_rate": 8},
    ),
    "distilbert": ("DistilBert", FIXED),
    "esm": ("ESM", TOKENS),
    "falcon": ("Falcon", {"vocabulary_size": WORDS, "num_attention_heads": 2, **BLOCKS}),
    "fnet": ("FNet", {"vocabulary_size": WORDS, "max_sequence_length": LENGTH, **BLOCKS}),
    "gemma": ("Gemma", {**GROUPED, "head_dim": 4}),
    "gpt2": ("GPT2", FIXED),
    "gpt_neox": ("GPTNeoX", TOKENS),
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 4}),
    "opt": ("OPT", FIXED),
    "phi3": ("Phi3", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "roberta": ("Roberta", FIXED),
    "swin": (
        "SwinTransformer",
        {**IMAGE, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    "t5": ("T5", TOKENS),
    "vit": ("ViT", {**PATCHES, "mlp_dim": 2 * WIDTH}),
}
EXPORTS: Mapping[str, Mapping[str, Any]] = {
    **{f"{runtime} {kind}": {} for runtime in ("tflite", "onnx", "openvino") for kind in ("float32", "int8")},
    **{f"{runtime} auto": {"max_degradation": LIMIT} for runtime in ("tflite", "onnx", "openvino")},
}


def main() -> None:
    """Make the models, export them and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--exports", nargs="+", choices=EXPORTS, default=list(EXPORTS))
    parser.add_argument("--folder", type=Path, help="store the models there, and reuse them")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as scratch:
        folder = arguments.folder or Path(scratch)
        for name in arguments.models:
            if not (folder / name / "examples").exists():
                write_model(name, folder / name)
                write_examples(folder / name)
        print_table(folder, arguments.models, arguments.exports)


def print_table(folder: Path, names: list[str], exports: list[str]) -> None:
    """Print a row for each model, with the correlation of its outputs with the parent's, or why there is no file."""
    from tfopt.processes.preloaded_processes import preloading

    print("| model | " + " | ".join(exports) + " |\n" + "|---" * (1 + len(exports)) + "|")
    with preloading(is_run=True, will_fork=True):
        for name in names:
            cells = [export(folder / name, kind) for kind in exports]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def export(folder: Path, kind: str) -> str:
    """Export a model; return the correlation and the file's size, or the reason of the refusal."""
    from tfopt.artifacts import Model
    from tfopt.component import find

    runtime, precision = kind.split()
    target = folder / kind
    shutil.rmtree(target, ignore_errors=True)
    sources = {"model": folder / "model", "examples": folder / "examples"}
    try:
        find(f"export_{runtime}")(**sources, exported=target, precision=precision, **EXPORTS[kind])
    except ComponentError as error:
        return error.received[:90]
    model = Model(target)
    (parity,) = model.card.facts["verified"]["outputs"].values()
    size = sum(file.stat().st_size for file in model.payload())
    return f"{parity['correlation']:.4f}, {size / 1e3:.0f} kB"


def write_model(name: str, folder: Path) -> None:
    """Write the SavedModel as Keras exports it."""
    import keras
    import keras_hub

    keras.utils.set_random_seed(0)
    kind, options = ARCHITECTURES[name]
    backbone = getattr(keras_hub.models, f"{kind}Backbone")(**options)
    output = backbone.output
    if isinstance(output, dict):
        output = output.get("decoder_sequence_output", next(iter(output.values())))
    pool: Mapping[int, Callable[..., Any]] = {
        3: keras.layers.GlobalAveragePooling1D(),
        4: keras.layers.GlobalAveragePooling2D(),
    }
    scores = keras.layers.Dense(5, activation="softmax")(pool[len(output.shape)](output))
    model = keras.Model(backbone.input, scores)
    generator = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + NOISE * generator.normal(size=weight.shape))
    model.export(str(folder / "model"), verbose=False)


def write_examples(folder: Path) -> None:
    """Write random tokens with masks, or random images, for the inputs of the model."""
    from tfopt import runtimes
    from tfopt.artifacts import SavedModel
    from tfopt.data.batches import serialize_records
    from tfopt.data.tfrecords import write_split

    with runtimes.load(SavedModel(folder / "model")) as model:
        specs = model.inputs
    generator = np.random.default_rng(0)
    for split, count in RECORDS.items():
        lengths = generator.integers(LENGTH // 2, LENGTH + 1, (count, 1))
        columns = {}
        for name, spec in specs.items():
            if spec.dtype == "float32":
                columns[name] = generator.random((count, SIDE, SIDE, 3), np.float32)
            elif name.endswith("padding_mask"):
                columns[name] = (np.arange(LENGTH) < lengths).astype(np.int32)
            else:
                most = 2 if name == "segment_ids" else WORDS
                columns[name] = generator.integers(most // WORDS, most, (count, LENGTH)).astype(np.int32)
        write_split(folder / "examples", split, serialize_records(columns))


if __name__ == "__main__":
    main()
