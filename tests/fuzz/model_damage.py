"""Damage to the structure of model files."""

import io
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.byte_damage import Damage
from tests.fuzz.runner import CANARY

BOMB = 4 << 30  # bytes that an archive unpacks to


def saved_model_damage() -> dict[str, Damage]:
    """Return damage to a SavedModel folder, by name."""

    def signature(meta: Any) -> Any:
        return meta.signature_def["serving_default"]

    def no_such_tensor(meta: Any) -> None:
        next(iter(signature(meta).outputs.values())).name = "nowhere:0"

    def no_such_input(meta: Any) -> None:
        next(iter(signature(meta).inputs.values())).name = "nowhere:0"

    def wrong_dtype(meta: Any) -> None:
        next(iter(signature(meta).inputs.values())).dtype = 7

    def bad_name(meta: Any) -> None:
        next(iter(signature(meta).outputs.values())).name = "a b:c:d"

    def no_encoding(meta: Any) -> None:
        next(iter(signature(meta).inputs.values())).ClearField("name")

    def cycle(meta: Any) -> None:
        nodes = [node for node in meta.graph_def.node if node.input]
        nodes[0].input[0] = nodes[-1].name
        nodes[-1].input[0] = nodes[0].name

    def unknown_op(meta: Any) -> None:
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                node.op = "NoSuchOp"

    def recursion(meta: Any) -> None:
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                if "PartitionedCall" in node.op:
                    node.attr["f"].func.name = function.signature.name

    def duplicates(meta: Any) -> None:
        meta.graph_def.node.extend(list(meta.graph_def.node)[:3])

    def no_functions(meta: Any) -> None:
        del meta.graph_def.library.function[:]

    def unknown_attribute(meta: Any) -> None:
        for node in meta.graph_def.node:
            node.attr["dtype"].type = 99

    def asset_outside(meta: Any) -> None:
        meta.asset_file_def.add(filename="../../../../etc/hostname").tensor_info.name = "Const:0"

    def no_objects(meta: Any) -> None:
        meta.ClearField("object_graph_def")

    def object_cycle(meta: Any) -> None:
        for node in meta.object_graph_def.nodes:
            for child in node.children:
                child.node_id = 10_000

    def other_signature(meta: Any) -> None:
        meta.signature_def["other"].CopyFrom(signature(meta))
        meta.signature_def.pop("serving_default")

    edits: dict[str, Callable[[Any], None]] = {
        "no signatures": lambda meta: meta.signature_def.clear(),
        "no default signature": other_signature,
        "no tags": lambda meta: meta.meta_info_def.ClearField("tags"),
        "no nodes": lambda meta: meta.graph_def.ClearField("node"),
        "no outputs": lambda meta: signature(meta).outputs.clear(),
        "no inputs": lambda meta: signature(meta).inputs.clear(),
        **{f.__name__.replace("_", " "): f for f in (
            no_such_tensor, no_such_input, wrong_dtype, bad_name, no_encoding, cycle, unknown_op, recursion, duplicates,
            no_functions, unknown_attribute, asset_outside, no_objects, object_cycle,
        )},
    }  # fmt: skip
    return {name: _meta_edit(edit) for name, edit in edits.items()} | {
        "no variables": lambda folder: shutil.rmtree(folder / "variables"),
        "no index": lambda folder: (folder / "variables" / "variables.index").unlink(),
        "asset link": _asset_link,
        "two graphs": lambda folder: _edit_saved_model(folder, lambda proto: proto.meta_graphs.add()),
        "no graphs": lambda folder: _edit_saved_model(folder, lambda proto: proto.ClearField("meta_graphs")),
    }


def graph_damage() -> dict[str, Damage]:
    """Return damage to a serialized GraphDef, by name."""

    def edited(edit: Callable[[Any], None]) -> Damage:
        def damage(file: Path) -> None:
            import tensorflow as tf

            graph = tf.compat.v1.GraphDef.FromString(file.read_bytes())
            edit(graph)
            file.write_bytes(graph.SerializeToString())

        return damage

    def cycle(graph: Any) -> None:
        nodes = [node for node in graph.node if node.input]
        nodes[0].input[0] = nodes[-1].name

    def huge_constant(graph: Any) -> None:
        for node in graph.node:
            if node.op == "Const" and node.attr["value"].tensor.tensor_shape.dim:
                for dim in node.attr["value"].tensor.tensor_shape.dim:
                    dim.size = 1 << 40

    def short_constant(graph: Any) -> None:
        for node in graph.node:
            if node.attr["value"].tensor.tensor_content:
                node.attr["value"].tensor.tensor_content = b"abc"

    def unknown_op(graph: Any) -> None:
        graph.node[-1].op = "NoSuchOp"

    def missing_input(graph: Any) -> None:
        next(node for node in graph.node if node.input).input[0] = "nowhere"

    def no_nodes(graph: Any) -> None:
        graph.ClearField("node")

    def no_names(graph: Any) -> None:
        for node in graph.node:
            node.name = ""

    edits = (cycle, huge_constant, short_constant, unknown_op, missing_input, no_nodes, no_names)
    return {edit.__name__.replace("_", " "): edited(edit) for edit in edits}


def keras_damage() -> dict[str, Damage]:
    """Return damage to a ``.keras`` archive, by name."""
    deep = b'{"config":' * 5000 + b"{}" + b"}" * 5000
    pickled = b"cos\nsystem\n(S'touch $" + CANARY.encode() + b"'\ntR."
    return {
        **{f"no {name}": _entry(name, None) for name in ("config.json", "metadata.json", "model.weights.h5")},
        **{f"empty {name}": _entry(name, b"") for name in ("config.json", "metadata.json", "model.weights.h5")},
        **{f"null {name}": _entry(name, b"null") for name in ("config.json", "metadata.json")},
        **{f"list {name}": _entry(name, b"[]") for name in ("config.json", "metadata.json")},
        **{f"object {name}": _entry(name, b"{}") for name in ("config.json", "metadata.json")},
        "deep config": _entry("config.json", deep),
        "version null": _entry("metadata.json", b'{"keras_version": null}'),
        "version list": _entry("metadata.json", b'{"keras_version": [2]}'),
        "version 2": _entry("metadata.json", b'{"keras_version": "2.15.0"}'),
        "version 9": _entry("metadata.json", b'{"keras_version": "9.9.9"}'),
        "binary config": _entry("config.json", bytes(range(256))),
        "no layers": _config(lambda config: config["config"].update(layers=[])),
        "layers null": _config(lambda config: config["config"].update(layers=None)),
        "unknown layer": _config(lambda config: config["config"]["layers"][1].update(class_name="NoSuchLayer")),
        "class os": _config(lambda config: config["config"]["layers"][1].update(module="os", class_name="system")),
        "class null": _config(lambda config: config["config"]["layers"][1].update(class_name=None)),
        "negative units": _config(lambda config: config["config"]["layers"][-1]["config"].update(units=-3)),
        "other units": _config(lambda config: config["config"]["layers"][-1]["config"].update(units=7)),
        "huge units": _config(lambda config: config["config"]["layers"][-1]["config"].update(units=1 << 40)),
        "no inputs": _config(lambda config: config["config"].update(input_layers=[])),
        "wrong node": _config(lambda config: config["config"].update(output_layers=["nowhere", 0, 0])),
        "bomb": _bomb("assets/bomb"),
        "bomb weights": _bomb("model.weights.h5"),
        "traversal": _add("../escaped.txt"),
        "absolute": _add("/tmp/tfopt-fuzz-escaped.txt"),
        "link": _add_link,
        "pickle": _add("assets/layer.pkl", pickled),
        "cut weights": _entry_edit("model.weights.h5", lambda data: data[: len(data) // 2]),
        "external weights": _entry_edit("model.weights.h5", _external_links),
        "nan weights": _entry_edit("model.weights.h5", _nan_weights),
        "false size": _false_size,
    }  # fmt: skip


def h5_damage() -> dict[str, Damage]:
    """Return damage to an HDF5 file of a whole model, by name."""
    import h5py

    def edited(edit: Callable[[Any], None]) -> Damage:
        def damage(file: Path) -> None:
            with h5py.File(file, "r+") as content:
                edit(content)

        return damage

    def config(value: Any) -> Damage:
        return edited(lambda content: content.attrs.__setitem__("model_config", value))

    def external(content: Any) -> None:
        names: list[str] = []
        content["model_weights"].visit(names.append)
        for name in names:
            if isinstance(content["model_weights"].get(name), h5py.Dataset):
                del content["model_weights"][name]
                content["model_weights"][name] = h5py.ExternalLink("/etc/passwd", "/x")

    return {
        "no config": edited(lambda content: content.attrs.__delitem__("model_config")),
        "null config": config("null"),
        "list config": config("[]"),
        "number config": config(3),
        "garbage config": config("{{{"),
        "deep config": config("[" * 10_000),
        "no weights": edited(lambda content: content.__delitem__("model_weights")),
        "version number": edited(lambda content: content.attrs.__setitem__("keras_version", 2)),
        "external": edited(external),
        "nan": edited(_fill_nan),
        "call": edited(_call_file_system),
    }


def _call_file_system(content: Any) -> None:
    """Add a layer that calls a function of TensorFlow which creates a folder."""
    model = json.loads(content.attrs["model_config"])
    config = {"name": "made", "function": "io.gfile.makedirs", "trainable": True, "dtype": "float32"}
    nodes = [["_CONSTANT_VALUE", -1, os.environ[CANARY], {}]]
    layer = {"class_name": "TFOpLambda", "name": "made", "config": config, "inbound_nodes": nodes}
    model["config"]["layers"].append(layer)
    content.attrs["model_config"] = json.dumps(model)


def _fill_nan(content: Any) -> None:
    import h5py

    def fill(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" and item.shape:
            item[...] = np.nan

    content.visititems(fill)


def onnx_damage() -> dict[str, Damage]:
    """Return damage to an ONNX file, by name."""

    def edited(edit: Callable[[Any], None]) -> Damage:
        def damage(folder: Path) -> None:
            import onnx

            file = folder / "model.onnx"
            model = onnx.load(file, load_external_data=False)
            edit(model)
            file.write_bytes(model.SerializeToString())

        return damage

    def location(value: str) -> Damage:
        def edit(model: Any) -> None:
            tensor = model.graph.initializer[0]
            tensor.ClearField("raw_data")
            tensor.data_location = 1
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value=value)

        return edited(edit)

    def entry(key: str, value: str) -> Damage:
        return edited(lambda model: model.graph.initializer[0].external_data.add(key=key, value=value))

    def link_out(folder: Path) -> None:
        (folder / "linked.bin").symlink_to("/etc/passwd")
        location("linked.bin")(folder)

    def cycle(model: Any) -> None:
        model.graph.node[0].input[0] = model.graph.node[1].output[0]

    def duplicates(model: Any) -> None:
        model.graph.node.extend(list(model.graph.node))

    def shape(sizes: list[int]) -> Damage:
        def edit(model: Any) -> None:
            del model.graph.initializer[0].dims[:]
            model.graph.initializer[0].dims.extend(sizes)

        return edited(edit)

    return {
        "no graph": edited(lambda model: model.ClearField("graph")),
        "no nodes": edited(lambda model: model.graph.ClearField("node")),
        "no outputs": edited(lambda model: model.graph.ClearField("output")),
        "no opset": edited(lambda model: model.ClearField("opset_import")),
        "opset 99": edited(lambda model: setattr(model.opset_import[0], "version", 99)),
        "ir 99": edited(lambda model: setattr(model, "ir_version", 99)),
        "unknown op": edited(lambda model: setattr(model.graph.node[0], "op_type", "NoSuchOp")),
        "missing input": edited(lambda model: model.graph.node[0].input.__setitem__(0, "nowhere")),
        "cycle": edited(cycle),
        "duplicates": edited(duplicates),
        "huge shape": shape([1 << 31, 1 << 31]),
        "negative shape": shape([-16, 3]),
        "other shape": shape([3, 16]),
        "traversal": location("../../../../../../etc/passwd"),
        "absolute": location("/etc/passwd"),
        "no file": location("nowhere.bin"),
        "link": link_out,
        "empty location": location(""),
        "device": location("/dev/zero"),
        "offset": entry("offset", "99999999999"),
        "negative offset": entry("offset", "-5"),
        "length": entry("length", "99999999999"),
        "text offset": entry("offset", "zero"),
    }


def openvino_damage() -> dict[str, Damage]:
    """Return damage to an OpenVINO model's folder, by name."""

    def xml(text: str) -> Damage:
        return lambda folder: (folder / "model.xml").write_text(text) and None

    def edited(edit: Callable[[Any], None]) -> Damage:
        def damage(folder: Path) -> None:
            from xml.etree import ElementTree

            tree = ElementTree.parse(folder / "model.xml")
            edit(tree.getroot())
            tree.write(folder / "model.xml")

        return damage

    def prolog(text: str) -> Damage:
        def damage(folder: Path) -> None:
            file = folder / "model.xml"
            body = file.read_text().partition("?>")[2]
            file.write_text('<?xml version="1.0"?>' + text + body.replace('name="', 'name="&e;', 1))

        return damage

    laughs = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))

    def attribute(path: str, name: str, value: str) -> Damage:
        return edited(lambda root: [item.set(name, value) for item in root.iterfind(path)] and None)

    def cycle(root: Any) -> None:
        edges = root.find("edges")
        for edge in edges:
            edge.set("from-layer", edge.get("to-layer"))

    return {
        "no layers": xml('<?xml version="1.0"?><net name="x" version="11"></net>'),
        "empty layers": xml('<?xml version="1.0"?><net name="x" version="11"><layers/><edges/></net>'),
        "other root": xml("<html><body/></html>"),
        "not closed": xml('<?xml version="1.0"?><net name="x" version="11"><layers>'),
        "deep": xml("<net>" * 50_000),
        "laughs": prolog(f'<!DOCTYPE net [<!ENTITY e0 "{"ha" * 50}">{laughs}<!ENTITY e "&e9;">]>'),
        "external entity": prolog('<!DOCTYPE net [<!ENTITY e SYSTEM "file:///etc/passwd">]>'),
        "network entity": prolog('<!DOCTYPE net SYSTEM "http://127.0.0.1:9/evil.dtd"[<!ENTITY e "x">]>'),
        "unknown layer": attribute("layers/layer", "type", "NoSuchLayer"),
        "no ids": attribute("layers/layer", "id", ""),
        "same ids": attribute("layers/layer", "id", "0"),
        "version": attribute(".", "version", "x"),
        "offset": attribute("layers/layer/data[@offset]", "offset", "99999999999"),
        "negative offset": attribute("layers/layer/data[@offset]", "offset", "-8"),
        "size": attribute("layers/layer/data[@offset]", "size", "99999999999"),
        "text size": attribute("layers/layer/data[@offset]", "size", "big"),
        "shape": attribute("layers/layer/data[@shape]", "shape", "-5,x"),
        "huge shape": attribute("layers/layer/data[@shape]", "shape", "99999999999,99999999999"),
        "type": attribute("layers/layer/data[@element_type]", "element_type", "f99"),
        "cycle": edited(cycle),
        "no edges": edited(lambda root: root.remove(root.find("edges"))),
        "short weights": lambda folder: (folder / "model.bin").write_bytes(b"ab") and None,
        "library": attribute("layers/layer[@type='Const']", "version", "extension"),
    }


def tflite_damage() -> dict[str, Damage]:
    """Return damage to a flatbuffer, by name."""

    def at(offset: int, value: bytes) -> Damage:
        def damage(file: Path) -> None:
            content = bytearray(file.read_bytes())
            content[offset : offset + len(value)] = value
            file.write_bytes(content)

        return damage

    return {
        "root far": at(0, struct.pack("<I", 0x7FFFFFFF)),
        "root zero": at(0, struct.pack("<I", 0)),
        "identifier": at(4, b"XXXX"),
        "header only": lambda file: file.write_bytes(file.read_bytes()[:8]) and None,
        "zeros": lambda file: file.write_bytes(file.read_bytes()[:64] + bytes(file.stat().st_size - 64)) and None,
    }


def _meta_edit(edit: Callable[[Any], None]) -> Damage:
    return lambda folder: _edit_saved_model(folder, lambda proto: edit(proto.meta_graphs[0]))


def _edit_saved_model(folder: Path, edit: Callable[[Any], Any]) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    file = folder / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    edit(proto)
    file.write_bytes(proto.SerializeToString())


def _asset_link(folder: Path) -> None:
    (folder / "assets").mkdir(exist_ok=True)
    (folder / "assets" / "secret.txt").symlink_to("/etc/passwd")


def _entry(name: str, content: bytes | None) -> Damage:
    return _entry_edit(name, lambda _: content)


def _entry_edit(name: str, edit: Callable[[bytes], bytes | None]) -> Damage:
    def damage(file: Path) -> None:
        with zipfile.ZipFile(file) as archive:
            entries = {item: archive.read(item) for item in archive.namelist()}
        changed = edit(entries.pop(name))
        with zipfile.ZipFile(file, "w") as archive:
            for item, content in (entries | ({} if changed is None else {name: changed})).items():
                archive.writestr(item, content)

    return damage


def _config(edit: Callable[[Any], Any]) -> Damage:
    def changed(data: bytes) -> bytes:
        config = json.loads(data)
        edit(config)
        return json.dumps(config).encode()

    return _entry_edit("config.json", changed)


def _add(name: str, content: bytes = b"escaped") -> Damage:
    def damage(file: Path) -> None:
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(zipfile.ZipInfo(name), content)

    return damage


def _add_link(file: Path) -> None:
    link = zipfile.ZipInfo("assets")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(link, "/etc")
        archive.writestr("assets/passwd", "x")


def _bomb(name: str) -> Damage:
    def damage(file: Path) -> None:
        with (
            zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open(name, "w", force_zip64=True) as stream,
        ):
            zeros = bytes(16 << 20)
            for _ in range(BOMB // 64 // len(zeros)):
                stream.write(zeros)

    return damage


def _false_size(file: Path) -> None:
    """Declare 4 GiB less in the directory than an entry has."""
    content = file.read_bytes()
    place = content.index(b"PK\x01\x02") + 24
    file.write_bytes(content[:place] + struct.pack("<I", 1) + content[place + 4 :])


def _external_links(data: bytes) -> bytes:
    import h5py

    stream = io.BytesIO(data)
    with h5py.File(stream, "r+") as content:
        names: list[str] = []
        content.visit(names.append)
        for name in [name for name in names if isinstance(content[name], h5py.Dataset)]:
            del content[name]
            content[name] = h5py.ExternalLink("/etc/passwd", "/x")
    return stream.getvalue()


def _nan_weights(data: bytes) -> bytes:
    import h5py

    stream = io.BytesIO(data)
    with h5py.File(stream, "r+") as content:
        _fill_nan(content)
    return stream.getvalue()
