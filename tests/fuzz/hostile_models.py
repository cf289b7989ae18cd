"""Cases of models that reach out of their files, need gigabytes, or do not end."""

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.byte_damage import Damage, below
from tests.fuzz.hostile_files import table, victim
from tests.fuzz.outcome import keras_is_whole
from tests.fuzz.runner import CANARY, Case

MODEL = "{originals}/model.tflite"
INSPECT = "inspect_model --inspection {in}/out --model {in}/"
FOLD = "fold_batch_norm --folded {in}/out --model {in}/"
OPTIMIZE = "optimize_graph --optimized {in}/out --model {in}/"
PRUNE = "prune --sparsity 0.5 --pruned {in}/out --model {in}/"
LITE = "export_tflite --precision float32 --exported {in}/out --model {in}/"
SERVE = "validate_serving --infra-blessing {in}/out --requests 2 --seconds 0.1 --model {in}/"
EVALUATE = (
    "evaluate --label label --evaluation {in}/out --replicates 100 --examples {originals}/examples "
    f"--candidates {MODEL} --baseline {{in}}/"
)
DIMENSION = 1 << 60
BOMB = 1 << 30  # numbers


def cases() -> Iterator[Case]:
    """Return the cases."""
    yield from _keras_paths()
    yield from _onnx_parts()
    yield from _lite_buffers()
    yield from _links()
    yield from _effects()
    yield from _bombs()
    yield from _dimensions()
    yield from _nan_weights()
    yield from _huge_constants()
    yield from _endless_graphs()


def _commands(argument: str, *templates: str) -> list[tuple[str, ...]]:
    return [tuple(f"{template}{argument}".split(" ")) for template in templates]


# ---------------------------------------------------------------- paths in Keras configurations

PATHS: dict[str, Callable[[], Any]] = {
    "absolute": lambda: str(victim()),
    "relative": lambda: "../victim/own.txt",
    "own assets": lambda: f"assets/../../{victim().parent.name}/own.txt",
    "proc": lambda: f"/proc/self/root{victim()}",
    "scheme": lambda: f"file://{victim()}",
    "store": lambda: "gs://nowhere-at-all/words",
    "bytes": lambda: {"class_name": "__bytes__", "config": {"value": str(victim())}},
    "device": lambda: "/dev/zero",
    "folder": lambda: str(victim().parent),
    "two slashes": lambda: f"//{victim()}",
}
PATH_LAYERS = (
    ("StringLookup", "vocabulary"), ("IntegerLookup", "vocabulary"), ("TextVectorization", "vocabulary"),
    ("StringLookup", "idf_weights"), ("TFSMLayer", "filepath"), ("Embedding", "weights"),
)  # fmt: skip


def _keras_paths() -> Iterator[Case]:
    for source in ("model.keras", "model.h5", "keras2.h5"):
        damage = {}
        for layer, key in PATH_LAYERS:
            for name, path in PATHS.items():
                if layer in ("StringLookup", "TFSMLayer") or name == "absolute":
                    damage[f"{layer} {key} {name}"] = keras_config(_add_layer, layer, key, path)
        yield from table("Keras path", source, damage, _commands(source, INSPECT, FOLD, LITE, PRUNE))


def _add_layer(model: dict[str, Any], layer: str, key: str, path: Callable[[], Any]) -> None:
    """Add a layer with an input of its own."""
    layers = model["config"]["layers"]
    is_old = "module" not in layers[0]
    config = {"name": "hostile", "dtype": "string", key: path(), "max_tokens": None}
    if layer == "TFSMLayer":
        config = {"name": "hostile", key: path(), "call_endpoint": "serving_default"}
    elif layer == "Embedding":
        config = {"name": "hostile", "input_dim": 4, "output_dim": 2, key: path()}
    entry = json.loads(json.dumps(layers[0]).replace("image", "words"))
    made = {"class_name": layer, "config": config, "name": "hostile"} | ({} if is_old else {"module": "keras.layers"})
    tensor = {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 4, 4, 1], "dtype": "string", "keras_history": ["words", 0, 0]},
    }
    made["inbound_nodes"] = [[["words", 0, 0, {}]]] if is_old else [{"args": [tensor], "kwargs": {}}]
    layers += [entry, made]


def keras_config(edit: Callable[..., None], *values: Any) -> Damage:
    """Return damage to the configuration in a ``.keras`` or HDF5 file."""

    def damage(file: Path) -> None:
        import h5py

        if file.suffix == ".keras":
            with zipfile.ZipFile(file) as archive:
                entries = {name: archive.read(name) for name in archive.namelist()}
            model = json.loads(entries["config.json"])
            edit(model, *values)
            _write_archive(file, entries | {"config.json": json.dumps(model).encode()})
            return
        with h5py.File(file, "r+") as content:
            model = json.loads(content.attrs["model_config"])
            edit(model, *values)
            content.attrs["model_config"] = json.dumps(model)

    return damage


def _write_archive(file: Path, entries: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


# ---------------------------------------------------------------- ONNX


def _onnx_parts() -> Iterator[Case]:
    group, end = b"\xa3\x06", b"\xa4\x06"  # of field 100
    hidden: dict[str, Callable[[bytes], bytes]] = {
        "as it is": lambda data: data,
        "group before": lambda data: group + end + data,
        "group after": lambda data: data + group + end,
        "deep groups": lambda data: group * 90 + end * 90 + data,
        "too deep groups": lambda data: group * 100_000 + end * 100_000 + data,
        "open group": lambda data: data + group,
        "closed group": lambda data: end + data,
        "wire type 6": lambda data: data + b"\xa6\x06",
        "wire type 7": lambda data: data + b"\xa7\x06",
        "field 0": lambda data: data + b"\x02\x00",
        "long key": lambda data: data.replace(b":", b"\xba\x80\x80\x80\x10", 1),
        "overlong key": lambda data: data.replace(b":", b"\xba\x80\x80\x80\x80\x80\x80\x80\x80\x00", 1),
        "unknown bytes": lambda data: data + b"\xa2\x06\x03abc",
        "unknown number": lambda data: data + b"\xa0\x06\x01",
        "long length": lambda data: data + b"\xa2\x06\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        "graph twice": lambda data: data + data,
    }
    damage = {name: _onnx_bytes(hide) for name, hide in hidden.items()}
    damage |= {f"{name}, victim's weights": _onnx_bytes(hide, outside=True) for name, hide in hidden.items()}
    damage |= {f"weights in {name}": _onnx_edit(edit) for name, edit in {
        "sparse values": lambda model, tensor: model.graph.sparse_initializer.add(values=tensor, dims=[16]),
        "sparse indices": lambda model, tensor: model.graph.sparse_initializer.add(indices=tensor, dims=[16]),
        "a constant": lambda model, tensor: model.graph.node.insert(0, _node("Constant", ["c"], value=tensor)),
        "constants": lambda model, tensor: model.graph.node.insert(0, _node("Constant", ["c"], values=[tensor])),
        "a branch": lambda model, tensor: model.graph.node.insert(0, _node("If", ["c"], then_branch=_graph(tensor))),
        "branches": lambda model, tensor: model.graph.node.insert(0, _node("If", ["c"], graphs=[_graph(tensor)])),
        "a function": lambda model, tensor: model.functions.add(node=[_node("Constant", ["c"], value=tensor)]),
        "training": lambda model, tensor: model.training_info.add(initialization=_graph(tensor)),
    }.items()}  # fmt: skip
    for source in ("onnx", "external"):
        argument = f"{source}/model.onnx"
        yield from table("ONNX part", source, damage, _commands(argument, EVALUATE, INSPECT, SERVE))


def _onnx_bytes(hide: Callable[[bytes], bytes], *, outside: bool = False) -> Damage:
    """Return damage to the bytes of an ONNX file, which end with its graph."""

    def damage(folder: Path) -> None:
        import onnx

        file = folder / "model.onnx"
        model = onnx.load(file, load_external_data=False)
        if outside:
            _set_outside(model.graph.initializer[0])
        rest = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import).SerializeToString()
        file.write_bytes(hide(rest + onnx.ModelProto(graph=model.graph).SerializeToString()))

    return damage


def _onnx_edit(edit: Callable[[Any, Any], object]) -> Damage:
    """Return damage that adds a tensor with the victim's bytes to a part of an ONNX file."""

    def damage(folder: Path) -> None:
        import onnx

        model = onnx.load(folder / "model.onnx", load_external_data=False)
        tensor = onnx.TensorProto(name="hostile", data_type=1, dims=[16])
        _set_outside(tensor)
        edit(model, tensor)
        (folder / "model.onnx").write_bytes(model.SerializeToString())

    return damage


def _set_outside(tensor: Any) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value=str(victim()))


def _node(op: str, outputs: Sequence[str], **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(op, ["image"] if op == "If" else [], outputs, name="hostile", **attributes)


def _graph(tensor: Any) -> Any:
    import onnx

    return onnx.GraphProto(name="g", initializer=[tensor])


# ---------------------------------------------------------------- LiteRT


def _lite_buffers() -> Iterator[Case]:
    def external(name: Callable[[], str]) -> Callable[[Any, Any], None]:
        def edit(model: Any, schema: Any) -> None:
            model.externalBufferGroups = [schema.ExternalBufferGroupT(name=name())]
            model.externalBuffers = [schema.ExternalBufferT(id=1, group=0, offset=0, length=64)]
            model.subgraphs[0].tensors[0].externalBuffer = 1

        return edit

    def buffer(**values: int) -> Callable[[Any, Any], None]:
        def edit(model: Any, schema: Any) -> None:
            largest = max(model.buffers, key=lambda one: 0 if one.data is None else len(one.data))
            largest.data = None
            for key, value in values.items():
                setattr(largest, key, value)

        return edit

    def tensors(**values: Any) -> Callable[[Any, Any], None]:
        def edit(model: Any, schema: Any) -> None:
            for tensor in model.subgraphs[0].tensors:
                for key, value in values.items():
                    setattr(tensor, key, value)

        return edit

    def inputs(model: Any, schema: Any) -> None:
        model.subgraphs[0].inputs = [1 << 30]

    def metadata(model: Any, schema: Any) -> None:
        model.metadata = [schema.MetadataT(name="x", buffer=1 << 31)]

    def cycle(model: Any, schema: Any) -> None:
        operators = model.subgraphs[0].operators
        operators[0].inputs = list(operators[-1].outputs)

    def no_code(model: Any, schema: Any) -> None:
        model.subgraphs[0].operators[0].opcodeIndex = 99

    edits = {
        "external absolute": external(lambda: str(victim())),
        "external relative": external(lambda: "../victim/own.txt"),
        "external next to it": external(lambda: "weights.bin"),
        "external device": external(lambda: "/dev/zero"),
        "external without a name": external(lambda: ""),
        "buffer far": buffer(offset=1 << 40, size=64),
        "buffer huge": buffer(offset=64, size=1 << 40),
        "buffer overflow": buffer(offset=(1 << 64) - 8, size=16),
        "buffer in the header": buffer(offset=2, size=64),
        "buffer empty": buffer(offset=64, size=0),
        "buffer index": tensors(buffer=1 << 31),
        "shape huge": tensors(shape=[(1 << 31) - 1] * 4),
        "shape negative": tensors(shape=[-5, -5]),
        "type": tensors(type=99),
        "no shape": tensors(shape=None),
        "inputs": inputs, "metadata": metadata, "cycle": cycle, "no code": no_code,
    }  # fmt: skip
    damage = {name: _lite_edit(edit) for name, edit in edits.items()}
    yield from table("LiteRT buffer", "model.tflite", damage, _commands("model.tflite", EVALUATE, INSPECT, SERVE))


def _lite_edit(edit: Callable[[Any, Any], None]) -> Damage:
    def damage(file: Path) -> None:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(file.read_bytes()))
        edit(model, schema)
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), b"TFL3")
        file.write_bytes(builder.Output())

    return damage


# ---------------------------------------------------------------- links in folders of models


def _links() -> Iterator[Case]:
    names = {
        "saved_model": ("saved_model.pb", "variables", "variables/variables.index", "assets", "more",
                        "variables/variables.data-00000-of-00001", "assets/more", "assets.extra/more"),
        "lookup": ("saved_model.pb", "assets", "assets/words.txt", "variables"),
        "keras2": ("keras_metadata.pb", "saved_model.pb", "variables", "assets/more"),
    }  # fmt: skip
    for source, files in names.items():
        damage = {f"{name} out": _linked(name, moves=False) for name in files}
        damage |= {f"{name} moved out": _linked(name, moves=True) for name in files if "more" not in name}
        damage |= {f"{name} loop": _loop(name) for name in ("assets/loop", "variables/loop")}
        yield from table("link", source, damage, _commands(source, FOLD, INSPECT, OPTIMIZE))


def _linked(name: str, *, moves: bool) -> Damage:
    """Replace a part of a model by a link to the victim, or move it out and leave a link."""

    def damage(folder: Path) -> None:
        path, target = folder / name, victim()
        path.parent.mkdir(exist_ok=True)
        if moves:
            target = target.parent / "moved"
            shutil.move(path, target)
        elif path.is_dir():
            shutil.rmtree(path)
            target = target.parent
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(target)

    return damage


def _loop(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to("..")

    return damage


# ---------------------------------------------------------------- operators with effects


def _effects() -> Iterator[Case]:
    from tests.saved_models.test_effects import NAMES

    damage = {f"{name} v{version}": _effect(name, version) for name in NAMES for version in (1, 2)}
    damage |= {f"main op {name}": _main_op(name) for name in ("write", "read", "print", "save")}
    damage |= {f"legacy_init_op {name}": _main_op(name, "legacy_init_op") for name in ("write", "print")}
    damage |= {f"saver {name}": _saver(name) for name in ("restore_op_name", "filename_tensor_name")}
    yield from table("effect", "saved_model", damage, _commands("saved_model", INSPECT), _lists_effects)
    yield from table("effect", "saved_model", damage, _commands("saved_model", FOLD, OPTIMIZE, LITE, EVALUATE))


def _lists_effects(folder: Path) -> bool:
    """Return True if the inspection names the operator: then it was right to end well."""
    report = folder.parent / "out" / "inspection.json"
    return report.is_file() and bool(json.loads(report.read_text()).get("outside"))


def _bodies() -> dict[str, Any]:
    """Return the bodies of models that read the victim, or write the canary."""
    from tests.saved_models import test_effects

    folder = victim().parent / "effects"
    folder.mkdir(exist_ok=True)
    bodies = test_effects.effects_at(folder)
    (folder / "secret").unlink()
    (folder / "secret").symlink_to(victim())
    (folder / "written").symlink_to(os.environ[CANARY])
    return bodies


def _effect(name: str, version: int) -> Damage:
    return lambda folder: _body(_bodies()[name][2], version)(folder)


def _main_op(name: str, collection: str = "") -> Damage:
    """Return damage that replaces a model by one whose initialization has an effect."""

    def damage(folder: Path) -> None:
        import tensorflow as tf

        from tests.saved_models import test_effects

        shutil.rmtree(folder)
        body = _bodies()[name][2]
        made: list[Any] = []

        def initialize() -> Any:
            made.append(tf.group(body(tf.zeros([1, 3])), name="hostile"))
            return None if collection else made[0]

        test_effects.write_v1(folder, lambda x: x, initialize)
        if collection:
            _edit_graph(folder, lambda graph: graph.collection_def[collection].node_list.value.append("hostile"))

    return damage


def _saver(field: str) -> Damage:
    def damage(folder: Path) -> None:
        import tensorflow as tf

        with tf.Graph().as_default() as other:
            tf.io.write_file(os.environ[CANARY], "text", name="hostile")
        _edit_graph(folder, lambda graph: (
            graph.graph_def.node.extend(other.as_graph_def().node),
            setattr(graph.saver_def, field, "hostile:0" if "tensor" in field else "hostile"),
        ))  # fmt: skip

    return damage


def _edit_graph(folder: Path, edit: Callable[[Any], object]) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    proto = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    edit(proto.meta_graphs[0])
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())


# ---------------------------------------------------------------- gigabytes


def _bombs() -> Iterator[Case]:
    def dataset(**options: Any) -> Callable[[Any, str], None]:
        return lambda content, name: content.create_dataset(name, (BOMB,), "f4", **options)

    def virtual(content: Any, name: str) -> None:
        import h5py

        layout = h5py.VirtualLayout((BOMB,), "f4")
        layout[:] = h5py.VirtualSource(str(victim()), "x", (BOMB,))
        content.create_virtual_dataset(name, layout)

    def outside(content: Any, name: str) -> None:
        content.create_dataset(name, (16,), "f4", external=[(str(victim()), 0, 64)])

    def groups(content: Any, name: str) -> None:
        for number in range(20_000):
            content.create_group(f"{name} {number}")

    def cycle(content: Any, name: str) -> None:
        content[name] = content["/"]

    def soft_loop(content: Any, name: str) -> None:
        import h5py

        content[name] = h5py.SoftLink(f"/{name}")

    def attribute(content: Any, name: str) -> None:
        content.create_dataset(name, (1,), "f4").attrs["x"] = "x" * 60_000

    def deep(content: Any, name: str) -> None:
        content.create_group("/".join([name, *("g" * 2000)]))

    def texts(content: Any, name: str) -> None:
        import h5py

        content.create_dataset(name, (1 << 20,), h5py.string_dtype(), chunks=(1 << 16,), compression="gzip")

    edits: dict[str, Callable[[Any, str], None]] = {
        "gzip": dataset(chunks=(1 << 20,), compression="gzip"),
        "lzf": dataset(chunks=(1 << 20,), compression="lzf"),
        "shuffled": dataset(chunks=(1 << 20,), compression="gzip", shuffle=True),
        "scaled": dataset(chunks=(1 << 20,), scaleoffset=2),
        "not allocated": dataset(),
        "filled": dataset(chunks=(1 << 20,), fillvalue=1.0),
        **{edit.__name__.replace("_", " "): edit for edit in (
            virtual, outside, groups, cycle, soft_loop, attribute, deep, texts,
        )},
    }  # fmt: skip
    for source in ("model.keras", "model.h5", "keras2.h5"):
        damage = {name: _hdf5(edit, "more") for name, edit in edits.items()}
        damage |= {
            f"{name} as weights": _hdf5(edit, None) for name, edit in edits.items() if name not in ("groups", "deep")
        }
        yield from table("bomb", source, damage, _commands(source, INSPECT, FOLD), keras_is_whole)
    arrays = {
        "2^60": ((DIMENSION,), "<f4"), "2^31 squared": ((1 << 31, 1 << 31), "<f4"), "nothing": ((DIMENSION, 0), "<f4"),
        "wide texts": ((24,), "<U500000000"), "huge items": ((24,), "V2000000000"), "negative": ((-1,), "<f4"),
        "overflow": ((1 << 63, 2), "<f4"), "many dimensions": ((1,) * 100, "<f4"), "text shape": ("x", "<f4"),
        "float shape": ((1.5,), "<f4"), "nested type": ((24,), [("a", "<f4", (1 << 40,))]),
    }  # fmt: skip
    damage = {name: below("arrays.npz", _npz(shape, dtype)) for name, (shape, dtype) in arrays.items()}
    damage |= {f"{name} of {size >> 20} MiB": below("arrays.npz", _npz(shape, "<f4", size)) for name, shape, size in (
        ("zeros", (1 << 28,), 1 << 30), ("zeros in rows", (24, 1 << 24), 24 << 26), ("short", (1 << 30,), 1 << 28),
    )}  # fmt: skip
    words = ("prepare_examples", "--data", "{in}/data/arrays.npz", "--examples", "{in}/out", "--label", "label")
    yield from table("bomb", "data", damage, [words])


def _hdf5(edit: Callable[[Any, str], None], name: str | None) -> Damage:
    """Return damage that adds something to HDF5 weights, or replaces the first ones by it."""

    def change(content: Any) -> None:
        import h5py

        names: list[str] = []
        content.visititems(
            lambda path, item: names.append(path) if isinstance(item, h5py.Dataset) and item.shape else None
        )
        if name is None:
            del content[names[0]]
        edit(content, name or names[0])

    def damage(file: Path) -> None:
        import h5py

        if file.suffix != ".keras":
            with h5py.File(file, "r+") as content:
                change(content)
            return
        with zipfile.ZipFile(file) as archive:
            entries = {item: archive.read(item) for item in archive.namelist()}
        stream = io.BytesIO(entries["model.weights.h5"])
        with h5py.File(stream, "r+") as content:
            change(content)
        _write_archive(file, entries | {"model.weights.h5": stream.getvalue()})

    return damage


def _npz(shape: Any, dtype: Any, zeros: int = 64) -> Damage:
    from tests.fuzz.data_damage import _npy_text

    def damage(file: Path) -> None:
        header = _npy_text(repr({"descr": dtype, "fortran_order": False, "shape": shape}))
        with zipfile.ZipFile(file) as archive:
            label = archive.read("label.npy")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("label.npy", label)
            with archive.open("image.npy", "w", force_zip64=True) as stream:
                stream.write(header)
                for _ in range(max(1, zeros >> 20)):
                    stream.write(bytes(min(zeros, 1 << 20)))

    return damage


def _dimensions() -> Iterator[Case]:
    for number, size in enumerate((DIMENSION, 1 << 31, (1 << 63) - 1, -5, 0)):
        for source in ("model.keras", "model.h5", "keras2.h5"):
            damage = {
                f"input {size}": keras_config(_batch_shape, size),
                f"units {size}": keras_config(_units, size),
            }
            yield from table("dimension", source, damage, _commands(source, INSPECT, FOLD))
        damage = {
            f"signature {size}": lambda folder, size=size: _edit_graph(folder, lambda graph: _resize(graph, size))
        }
        commands = _commands("saved_model", FOLD, INSPECT)[number % 2 :]
        yield from table("dimension", "saved_model", damage, commands, _has_signatures)
        damage = {f"input {size}": lambda folder, size=size: _resize_onnx(folder, size)}
        yield from table("dimension", "onnx", damage, _commands("onnx/model.onnx", EVALUATE, INSPECT)[number % 2 :])


def _has_signatures(folder: Path) -> bool:
    """Return True if TensorFlow loads a model, for which shapes of signatures are no more than remarks."""
    import tensorflow as tf

    return bool(tf.saved_model.load(str(folder)).signatures)


def _batch_shape(model: dict[str, Any], size: int) -> None:
    config = model["config"]["layers"][0]["config"]
    config["batch_shape" if "batch_shape" in config else "batch_input_shape"] = [None, size, 4, 1]


def _units(model: dict[str, Any], size: int) -> None:
    model["config"]["layers"][-1]["config"]["units"] = size


def _resize(graph: Any, size: int) -> None:
    for signature in graph.signature_def.values():
        for end in signature.inputs.values():
            for dimension in end.tensor_shape.dim:
                dimension.size = size


def _resize_onnx(folder: Path, size: int) -> None:
    import onnx

    model = onnx.load(folder / "model.onnx")
    for dimension in model.graph.input[0].type.tensor_type.shape.dim:
        dimension.dim_value = size
    (folder / "model.onnx").write_bytes(model.SerializeToString())


# ---------------------------------------------------------------- NaN


def _nan_weights() -> Iterator[Case]:
    """Weights that are NaN or infinite: the inspection has to name them."""
    for name, value in (("nan", np.nan), ("infinite", np.inf)):
        for source, argument, damage in (
            ("saved_model", "saved_model", _nan_saved_model),
            ("model.keras", "model.keras", _nan_keras),
            ("model.h5", "model.h5", _nan_keras),
            ("keras2.h5", "keras2.h5", _nan_keras),
        ):
            item = lambda path, damage=damage, value=value: damage(path, value)  # noqa: E731
            yield from table("NaN", source, {name: item}, _commands(argument, INSPECT), _names_nan)


def _names_nan(path: Path) -> bool:
    folder = path.parent / "out"
    text = (folder / "inspection.json").read_text().casefold()
    return bool(re.search(r"\bnan\b|not finite|infinit", text))


def _nan_saved_model(folder: Path, value: float) -> None:
    shutil.rmtree(folder)
    _small_model(value).export(folder, verbose=False)


def _small_model(value: float) -> Any:
    import keras

    inputs = keras.Input((4, 4, 1), name="image")
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(inputs)))
    model.set_weights([np.full_like(array, value) for array in model.get_weights()])
    return model


def _nan_keras(file: Path, value: float) -> None:
    import keras
    import tf_keras

    library = tf_keras if file.name == "keras2.h5" else keras
    model = library.models.load_model(file, compile=False)
    model.set_weights([np.full_like(array, value) for array in model.get_weights()])
    model.save(file)


# ---------------------------------------------------------------- graphs that never end


def _huge_constants() -> Iterator[Case]:
    """Return graphs of bytes with constants of terabytes, which constant folding would compute."""
    import tensorflow as tf

    numbers: dict[str, Callable[[], Any]] = {
        "zeros": lambda: tf.zeros([1 << 30, 1 << 30]),
        "fill": lambda: tf.fill([1 << 20, 1 << 20], 2.0),
        "range": lambda: tf.cast(tf.range(tf.constant(1 << 40, tf.int64)), tf.float32),
        "tile": lambda: tf.tile(tf.ones([1024]), [1 << 30]),
        "broadcast": lambda: tf.broadcast_to(tf.ones([1]), tf.constant([1 << 40], tf.int64)),
        "product": lambda: tf.matmul(tf.ones([1 << 20, 1]), tf.ones([1, 1 << 20])),
        "one hot": lambda: tf.one_hot(tf.range(1 << 20), 1 << 20),
        "pad": lambda: tf.pad(tf.ones([2, 2]), [[0, 1 << 20], [0, 1 << 20]]),
    }
    for name, make in numbers.items():
        for version, words in enumerate(_commands("saved_model", OPTIMIZE, FOLD)):
            damage = _body(lambda x, make=make: x + tf.reduce_sum(make()), 1 + version)
            yield Case(f"constant/{name}/{words[0]}", words, "saved_model", damage, lambda folder: True)


def _body(body: Callable[[Any], Any], version: int) -> Damage:
    """Return damage that replaces a model by one that computes something else."""

    def damage(folder: Path) -> None:
        from tests.saved_models import test_effects

        shutil.rmtree(folder)
        (test_effects.write_v1 if version == 1 else test_effects.write_v2)(folder, body)

    return damage


def _endless_graphs() -> Iterator[Case]:
    for name in ("while", "counted while", "dataset", "dataset of a generator", "nested while"):
        commands = (EVALUATE, FOLD, OPTIMIZE, SERVE) if name in ("while", "dataset") else (FOLD, EVALUATE)
        for words in _commands("saved_model", *commands):
            yield Case(f"endless/{name}/{words[0]}", words, "saved_model", _endless(name))
    for name in ("loop", "counted loop"):
        for words in _commands("onnx/model.onnx", EVALUATE, SERVE):
            yield Case(
                f"endless/onnx {name}/{words[0]}", words, "onnx", lambda folder, name=name: _onnx_loop(folder, name)
            )
    words = _commands("model.tflite", EVALUATE)[0]
    yield Case("endless/LiteRT while/evaluate", words, "model.tflite", _lite_loop)


def _endless_body(name: str) -> Callable[[Any], Any]:
    import tensorflow as tf

    def loop(x: Any) -> Any:
        limit = tf.int64.max if name == "counted while" else tf.constant(-1, tf.int64)
        condition = lambda i, y: i < limit if name == "counted while" else tf.math.not_equal(i, limit)  # noqa: E731

        def body(i: Any, y: Any) -> Any:
            inner = tf.while_loop(condition, lambda j, z: (j + 1, z), (i, y))[1] if name == "nested while" else y
            return i + 1, inner * 1.0

        return tf.while_loop(condition, body, (tf.constant(0, tf.int64), x))[1]

    def dataset(x: Any) -> Any:
        numbers = tf.data.Dataset.range(2).repeat()
        if name != "dataset":
            numbers = tf.data.Dataset.range(2).flat_map(lambda n: tf.data.Dataset.from_tensors(n).repeat())
        return x + numbers.reduce(0.0, lambda total, n: total + tf.cast(n, tf.float32))

    return dataset if "dataset" in name else loop


def _endless_module(name: str) -> Any:
    import tensorflow as tf

    module = tf.Module()
    module.scale = tf.Variable(tf.ones([16, 3]))
    body = _endless_body(name)
    module.serve = tf.function(
        lambda image: {"digit": body(tf.nn.softmax(tf.reshape(image, [-1, 16]) @ module.scale))},
        input_signature=[tf.TensorSpec([None, 4, 4, 1], name="image")],
    )
    return module


def _endless(name: str) -> Damage:
    def damage(folder: Path) -> None:
        import tensorflow as tf

        shutil.rmtree(folder)
        module = _endless_module(name)
        tf.saved_model.save(module, str(folder), signatures=module.serve)

    return damage


def _lite_loop(file: Path) -> None:
    import tensorflow as tf

    module = _endless_module("while")
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.serve.get_concrete_function()], module)
    file.write_bytes(converter.convert())


def _onnx_loop(folder: Path, name: str) -> None:
    """Put a loop behind the last node: without a limit, or with one of 2^62 rounds."""
    import onnx
    from onnx import helper

    model = onnx.load(folder / "model.onnx")
    output = model.graph.output[0].name
    model.graph.node[-1].output[0] = "before"
    values = [helper.make_tensor_value_info(*of) for of in (
        ("i", 7, []), ("go", 9, []), ("x", 1, None), ("go on", 9, []), ("y", 1, None))]  # fmt: skip
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("go", "go on"), ("x", "y"))]
    body = helper.make_graph(nodes, "body", values[:3], values[3:])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "true"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1 << 62), "rounds"))
    count = "rounds" if name == "counted loop" else ""
    model.graph.node.append(helper.make_node("Loop", [count, "true", "before"], [output], body=body))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
