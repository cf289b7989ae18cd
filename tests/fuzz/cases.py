"""The cases: each damage of each input, with a command that reads it; components take turns."""

import functools
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.fuzz import dag_cases, hostile_files, hostile_models, shared_folders
from tests.fuzz.byte_damage import Damage, below, flips, json_texts, json_value, whole_file_damage, write
from tests.fuzz.data_damage import npz_damage, parquet_damage, record_damage, table_damage
from tests.fuzz.model_damage import (
    graph_damage,
    h5_damage,
    keras_damage,
    onnx_damage,
    openvino_damage,
    saved_model_damage,
    tflite_damage,
)
from tests.fuzz.outcome import keras_is_whole
from tests.fuzz.runner import Case
from tfopt import artifacts
from tfopt.artifacts import CARD
from tfopt.artifacts.model_card import ModelCard
from tfopt.data.feature_schema import read_manifest
from tfopt.data.tfrecords import read_records

Command = tuple[str, ...]
EXAMPLES = "{originals}/examples"
MODEL = "{originals}/saved_model"
MODULE = "{originals}/module.py"


def all_cases() -> list[Case]:
    """Return every case, in a seeded order, so that the first ones are a sample of all."""
    cases = list(itertools.chain(
        _saved_models(), _keras(), _exported(), _records(), _data(), _reports(), _graphs(), dag_cases.cases(),
        hostile_files.cases(), hostile_models.cases(), shared_folders.cases(),
    ))  # fmt: skip
    assert len({case.name for case in cases}) == len(cases)
    random.Random(1).shuffle(cases)
    return cases


def _saved_models() -> Iterator[Case]:
    source = "saved_model"
    commands = _commands(source, (
        "inspect_model --model {x} --inspection {out}",
        "fold_batch_norm --model {x} --folded {out}",
        "optimize_graph --model {x} --optimized {out}",
        "export_tflite --model {x} --exported {out} --precision float32",
        "configure_runtime --model {x} --configured {out}",
        "export_onnx --model {x} --exported {out}",
        "evaluate --baseline {x} --candidates {m} --examples {e} --label label --evaluation {out} --replicates 100",
        "cast_precision --model {x} --cast {out}",
        "compile_xla --model {x} --compiled {out}",
        "quantize_graph --model {x} --quantized {out} --examples {e}",
        "export_openvino --model {x} --exported {out}",
    ))  # fmt: skip
    files = {"saved_model.pb": {}, "variables/variables.index": {}, "variables/variables.data-00000-of-00001": {}}
    damage = saved_model_damage()
    for file in files:
        damage |= {f"{file} {name}": below(file, item) for name, item in whole_file_damage().items()}
        damage |= {f"{file} flip {seed}": below(file, flips(seed)) for seed in range(8)}
    yield from _cases(source, damage, commands, whole=_saved_model_is_whole)
    # Passing on unchanged is a promise of its own for models that cannot be loaded.
    fold = _commands(source, ("fold_batch_norm --model {x} --folded {out}",))
    yield from _cases(f"{source} ", {name: item for name, item in damage.items() if "flip" not in name}, fold)
    lookup = {
        "no asset": lambda folder: next((folder / "assets").iterdir()).unlink(),
        "empty asset": lambda folder: next((folder / "assets").iterdir()).write_bytes(b"") and None,
        "asset folder": below("assets/words.txt", whole_file_damage()["folder"]),
        "asset device": below("assets/words.txt", whole_file_damage()["device"]),
        "asset outside": saved_model_damage()["asset outside"],
        "int16x8": lambda folder: None,
    }
    commands = _commands("lookup", (
        "optimize_graph --model {x} --optimized {out}", "inspect_model --model {x} --inspection {out}",
        "export_tflite --model {x} --exported {out}", "export_onnx --model {x} --exported {out}",
        "evaluate --baseline {x} --candidates {m} --examples {e} --label label --evaluation {out} --replicates 100",
        "export_tflite --model {x} --exported {out} --precision int16x8 --examples {e}",
    ))  # fmt: skip
    yield from _cases("lookup", lookup, commands)


def _keras() -> Iterator[Case]:
    templates = (
        "inspect_model --model {x} --inspection {out}",
        "fold_batch_norm --model {x} --folded {out}",
        "export_tflite --model {x} --exported {out} --precision float32",
        "optimize_graph --model {x} --optimized {out}",
        "prune --model {x} --pruned {out} --sparsity 0.5",
        "cluster --model {x} --clustered {out}",
        "evaluate --baseline {x} --candidates {m} --examples {e} --label label --evaluation {out} --replicates 100",
    )
    damage = whole_file_damage() | {f"flip {seed}": flips(seed, 6) for seed in range(10)}
    yield from _cases("model.keras", damage | keras_damage(), _commands("model.keras", templates), keras_is_whole)
    yield from _cases("model.h5", damage | h5_damage(), _commands("model.h5", templates), keras_is_whole)
    yield from _cases("keras2.h5", damage | h5_damage(), _commands("keras2.h5", templates), keras_is_whole)
    folder = {
        "keras_metadata.pb empty": below("keras_metadata.pb", write(b"")),
        **{f"keras_metadata.pb flip {seed}": below("keras_metadata.pb", flips(seed)) for seed in range(6)},
        **{f"{name}": below("keras_metadata.pb", item) for name, item in whole_file_damage().items()},
        "no variables": saved_model_damage()["no variables"],
    }
    yield from _cases("keras2", folder, _commands("keras2", templates), keras_is_whole)


def _exported() -> Iterator[Case]:
    templates = (
        "evaluate --baseline {x} --candidates {m} --examples {e} --label label --evaluation {out} --replicates 100",
        "evaluate --baseline {m} --candidates {x} --examples {e} --label label --evaluation {out} --replicates 100",
        "validate_serving --model {x} --infra-blessing {out} --requests 2 --seconds 0.1",
        "inspect_model --model {x} --inspection {out}",
    )
    files = whole_file_damage() | {f"flip {seed}": flips(seed) for seed in range(14)}
    yield from _cases(
        "model.tflite", files | tflite_damage(), _commands("model.tflite", templates), _runs("model.tflite")
    )
    for folder, name, damage in (("onnx", "model.onnx", onnx_damage()), ("external", "model.onnx", onnx_damage())):
        damage = damage | {key: below(name, item) for key, item in files.items()}
        yield from _cases(folder, damage, _commands(f"{folder}/{name}", templates), _runs(name))
    weights = {f"weights {key}": below("weights.bin", item) for key, item in whole_file_damage().items()}
    yield from _cases("external", weights, _commands("external/model.onnx", templates), _runs("model.onnx"))
    damage = openvino_damage() | {f"xml {key}": below("model.xml", item) for key, item in files.items()}
    damage |= {f"bin {key}": below("model.bin", item) for key, item in whole_file_damage().items()}
    yield from _cases("openvino", damage, _commands("openvino/model.xml", templates), _runs("model.xml"))


def _records() -> Iterator[Case]:
    for source, suffix in (("examples", ".gz"), ("plain", "")):
        templates = (
            "evaluate --baseline {m} --candidates {m} --examples {x} --label label --evaluation {out} --replicates 100",
            "train --examples {x} --module {module} --trained {out} --epochs 1 --precision float32 --jit-compile off",
            "export_tflite --model {m} --exported {out} --examples {x} --precision int8 --split eval",
            "optimize_graph --model {m} --optimized {out} --examples {x}",
        )
        file = f"Split-eval/data_tfrecord-00000-of-00001{suffix}"
        damage = {name: below(file, item) for name, item in whole_file_damage().items()}
        damage |= {name: below(file, item) for name, item in record_damage(packed=bool(suffix)).items()}
        damage |= {f"flip {seed}": below(file, flips(seed)) for seed in range(6)}
        yield from _cases(source, damage, _commands(source, templates))
    templates = templates[:3]
    manifest = {name: below("examples.json", write(content)) for name, content in json_texts().items()}
    manifest |= {f"manifest {name}": below("examples.json", item) for name, item in whole_file_damage().items()}
    manifest |= {f"value {seed}": below("examples.json", json_value(seed)) for seed in range(24)}
    yield from _cases("plain", manifest, _commands("plain", templates), _manifest_is_whole)


def _data() -> Iterator[Case]:
    files = whole_file_damage()
    sources: dict[str, dict[str, Damage]] = {
        "table.csv": table_damage("csv"),
        "table.tsv": table_damage("tsv"),
        "table.jsonl": table_damage("jsonl"),
        "table.parquet": parquet_damage(),
        "arrays.npz": npz_damage(),
        "rows.tfrecord": record_damage(packed=False),
        "rows.tfrecord.gz": record_damage(packed=True),
    }
    for name, damage in sources.items():
        binary = {f"flip {seed}": flips(seed) for seed in range(5)} if "table" not in name or "parquet" in name else {}
        command = _commands(f"data/{name}", ("prepare_examples --data {x} --examples {out} --label label",))
        yield from _cases(f"data/{name}", files | damage | binary, command, _data_is_whole)


def _reports() -> Iterator[Case]:
    select = (
        "select_model --baseline {o}/rows/0\0trained --candidates {o}/rows/1\0folded {o}/rows/2\0tflite\0float32 "
        "--evaluation {E} --benchmark {B} --selected {out} --decision {out}2 --blessing {out}3"
    )
    push = "push_model --model {o}/selected --blessing {L} --decision {D} --pushed {out} --destination {out}4"
    train = "train --examples {o}/plain --module {module} --plan {P} --trained {out} --epochs 1"
    for source, name, template, letter in (
        ("evaluation", "evaluation.json", select, "E"),
        ("benchmark", "benchmark.json", select, "B"),
        ("decision", "decision.json", push, "D"),
        ("blessing", "blessing.json", push, "L"),
        ("plan", "plan.json", train, "P"),
        ("rows/1 folded", "model_card.json", select, "C"),
    ):
        places = {"E": "evaluation", "B": "benchmark", "D": "decision", "L": "blessing", "P": "plan"}
        words = template.split(" ")
        for key, folder in places.items():
            words = [
                word.replace(f"{{{key}}}", ("{in}/" if key == letter else "{originals}/") + folder) for word in words
            ]
        if letter == "C":
            words = [word.replace("{o}/rows/1", "{in}/rows/1") for word in words]
        damage = {key: below(name, write(content)) for key, content in json_texts().items()}
        damage |= {f"file {key}": below(name, item) for key, item in whole_file_damage().items()}
        damage |= {f"value {seed}": below(name, json_value(seed)) for seed in range(20)}
        yield from _cases(source, damage, [_words(" ".join(words), source)], _report_is_whole(name))


def _graphs() -> Iterator[Case]:
    template = "optimize_graph --model {x} --optimized {out} --inputs image --outputs Identity"
    damage = whole_file_damage() | graph_damage() | {f"flip {seed}": flips(seed) for seed in range(10)}
    yield from _cases("frozen.pb", damage, _commands("frozen.pb", (template,)))


def _cases(
    source: str, damage: Mapping[str, Damage], commands: list[Command], whole: Callable[[Path], bool] | None = None
) -> Iterator[Case]:
    turns = itertools.cycle(commands)
    for name, item in damage.items():
        words = next(turns)
        yield Case(f"{source}/{name}/{words[0]}", words, source.strip(), item, whole)


def _commands(source: str, templates: tuple[str, ...]) -> list[Command]:
    return [_words(template, source) for template in templates]


def _words(template: str, source: str) -> Command:
    names = {"{x}": f"{{in}}/{source}", "{e}": EXAMPLES, "{m}": MODEL, "{module}": MODULE, "{o}": "{originals}"}
    for name, value in names.items():
        template = template.replace(name, value)
    return tuple(word.replace("\0", " ") for word in template.split(" "))


def _saved_model_is_whole(folder: Path) -> bool:
    import tensorflow as tf

    return bool(tf.saved_model.load(str(folder)).signatures)


def _report_is_whole(name: str) -> Callable[[Path], bool]:
    """Return a test whether a report fits its schema; a number in it may be another one."""

    def whole(folder: Path) -> bool:
        if name == CARD:
            return bool(ModelCard.read(folder))
        report = next(kind for kind in vars(artifacts).values() if getattr(kind, "file", None) == name)
        return bool(report(folder).load())

    return whole


def _manifest_is_whole(folder: Path) -> bool:
    """Return True for a manifest that fits its schema, whose keys are all optional; without one nothing is known."""
    return bool(read_manifest(folder))


def _data_is_whole(file: Path) -> bool:
    """Return True if pandas, NumPy or the record reader reads a file: text has no checksums."""
    import numpy as np
    import pandas

    if "tfrecord" in file.name:
        import tensorflow as tf

        return all(tf.train.Example.FromString(record) is not None for record in read_records([file]))
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return len(dict(arrays)) > 1
    if file.suffix == ".jsonl":
        return bool([json.loads(line, parse_constant=float) for line in file.read_text().splitlines()])
    read = pandas.read_parquet if file.suffix == ".parquet" else functools.partial(pandas.read_csv, sep=None)
    return len(read(file)) > 0


def _runs(name: str) -> Callable[[Path], bool]:
    """Return a test whether the format's own runtime loads and runs a file."""

    def whole(path: Path) -> bool:
        from tfopt import runtimes
        from tfopt.artifacts import Model
        from tfopt.data.sample_inputs import random_batch

        with runtimes.load(Model(path if path.is_file() else path / name)) as runtime:
            return bool(runtime.run(random_batch(runtime.inputs, records=2, seed=0)))

    return whole
