"""Test that artifacts open files from any source and reject other content with a reason."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tfopt.artifacts import (
    Decision,
    Evaluation,
    Examples,
    KerasModel,
    Model,
    OnnxModel,
    OpenVINOModel,
    PythonModule,
    SavedModel,
    StableHLOModel,
    TensorRTModel,
    TFLiteModel,
    models,
    unique_names,
)
from tfopt.artifacts.model_card import write_card
from tfopt.errors import ComponentError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file name pattern of each artifact; the contents are not valid."""
    files = [
        "artifact/Format-Serving/saved_model.pb",
        "artifact/Format-Keras/model.keras",
        "bare/saved_model.pb",
        "keras2/saved_model.pb",
        "keras2/keras_metadata.pb",
        "m.keras",
        "m.h5",
        "m.hdf5",
        "m.tflite",
        "m.onnx",
        "onnx/Format-Serving/model.onnx",
        "vino/Format-Serving/model.xml",
        "vino/Format-Serving/model.bin",
        "bare_vino/model.xml",
        "bare_vino/model.bin",
        "net.xml",
        "net.bin",
        "no_weights/Format-Serving/model.xml",
        "hlo/Format-Serving/model.mlirbc",
        "hlo/Format-Serving/model.json",
        "net.mlirbc",  # without its .json file
        "plan/Format-Serving/model.plan",
        "plan/Format-Serving/compatibility.json",
        "m.engine",
        "lite/Format-Serving/tflite",
        "lite/Format-Serving/saved_model.pb",
        "notes.txt",
        "split/Split-train/data_tfrecord-0.gz",
        "split/Split-train/_SUCCESS",
        "split/Split-eval/data_tfrecord-0.gz",
        "bare_records/part.tfrecord",
        "module.py",
        "written/module.py",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text({".onnx": "\x08\x07", ".xml": "<net/>"}.get(Path(name).suffix, name))
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "form"),
    [
        ("artifact", KerasModel, "saved_model"),
        ("artifact", SavedModel, "saved_model"),
        ("bare", SavedModel, "saved_model"),
        ("keras2", KerasModel, "saved_model"),
        ("m.keras", KerasModel, "keras"),
        ("m.h5", KerasModel, "keras"),
        ("m.hdf5", KerasModel, "keras"),
        ("m.keras", SavedModel, "keras"),
        ("m.tflite", TFLiteModel, "tflite"),
        ("lite", TFLiteModel, "tflite"),
        ("lite", Model, "tflite"),
        ("m.onnx", OnnxModel, "onnx"),
        ("onnx", OnnxModel, "onnx"),
        ("onnx", Model, "onnx"),
        ("vino", OpenVINOModel, "openvino"),
        ("vino", Model, "openvino"),
        ("bare_vino", OpenVINOModel, "openvino"),
        ("net.xml", Model, "openvino"),
        ("hlo", StableHLOModel, "stablehlo"),
        ("plan", TensorRTModel, "tensorrt"),
        ("plan", Model, "tensorrt"),
        ("m.engine", Model, "tensorrt"),
        ("bare", TensorRTModel, "saved_model"),  # as TF-TRT writes it
    ],
)
def test_open_detects_the_format(folder, name, kind, form):
    assert kind.open(folder / name).format == form


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bare", KerasModel),
        ("m.tflite", SavedModel),
        ("m.tflite", KerasModel),
        ("bare", TFLiteModel),
        ("bare", OnnxModel),
        ("m.onnx", SavedModel),
        ("m.onnx", OpenVINOModel),
        ("m.onnx", TensorRTModel),
        ("plan", OnnxModel),
        ("no_weights", OpenVINOModel),
        ("net.mlirbc", StableHLOModel),
        ("no_weights", Model),
        ("net.xml", SavedModel),
        ("notes.txt", Model),
        ("empty", Model),
        ("empty", Examples),
        ("notes.txt", PythonModule),
        ("empty", Evaluation),
        ("empty", Decision),
    ],
)
def test_open_rejects_other_content(folder, name, kind):
    with pytest.raises(ComponentError) as refusal:
        kind.open(folder / name)
    assert str(folder / name) in refusal.value.received
    assert refusal.value.fix


def test_open_refuses_a_device():
    with pytest.raises(ComponentError, match=r"(?s)/dev/null: a device, pipe or socket.*Examples: "):
        Examples.open("/dev/null")


def test_open_names_the_first_missing_folder(folder):
    with pytest.raises(ComponentError, match="check the path"):
        Model.open(folder / "absent")
    with pytest.raises(ComponentError, match="does not exist either"):
        Model.open(folder / "absent" / "deeper")


def test_payload_has_the_deployed_files_only(folder):
    assert [file.name for file in Model(folder / "artifact").payload()] == ["saved_model.pb"]
    assert [file.name for file in Model(folder / "lite").payload()] == ["tflite"]
    assert [file.name for file in Model(folder / "onnx").payload()] == ["model.onnx"]
    for bare in ("vino", "net.xml"):
        assert [file.suffix for file in Model(folder / bare).payload()] == [".bin", ".xml"]
    assert [file.name for file in Model(folder / "plan").payload()] == ["model.plan", "compatibility.json"]
    assert [file.name for file in Model(folder / "m.engine").payload()] == ["m.engine"]  # no tag: made elsewhere
    assert Model(folder / "m.h5").sizes()["raw"] == 4


def test_sizes_are_those_of_gzip_also_in_blocks(tmp_path, monkeypatch):
    for name, size in (("empty", 0), ("one", 9_000), ("several", 100_001)):
        file = tmp_path / f"{name}.tflite"
        file.write_bytes(np.random.default_rng(0).integers(0, 20, size, np.uint8).tobytes())
        expected = len(gzip.compress(file.read_bytes(), 6))
        assert Model(file).sizes() == {"raw": size, "gzipped": expected}
        with monkeypatch.context() as patch:
            patch.setattr(models, "GZIP_BLOCK", 10_000)
            assert Model(file).sizes()["gzipped"] == pytest.approx(expected, rel=0.02)


def test_the_gzipped_size_is_read_from_the_card_of_the_same_files(folder):
    model = Model(folder / "lite")
    write_card(model.path, {"digest": model.digest, "sizes": {"raw": 1, "gzipped": 3}})
    assert Model(model.path).sizes() == {"raw": len("lite/Format-Serving/tflite"), "gzipped": 3}
    (model.path / "Format-Serving" / "tflite").write_bytes(b"other")
    assert Model(model.path).sizes() == {"raw": 5, "gzipped": len(gzip.compress(b"other"))}


def test_digest_of_a_bare_file_includes_its_weights_file(folder):
    before = Model(folder / "net.xml").digest
    (folder / "net.bin").write_text("other weights")
    assert Model(folder / "net.xml").digest != before


def external_weights_model(folder: Path) -> Path:
    """Write a bare ONNX file with external weights in a folder, also for the branches of an If node."""
    import onnx
    from onnx import helper, numpy_helper

    def weights(name: str) -> onnx.TensorProto:
        return numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), name)

    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4]) for name in ("x", "y", "z")]
    branch = helper.make_graph([helper.make_node("Identity", ["v"], ["z"])], "b", [], [ends[2]], [weights("v")])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Cast", ["one"], ["true"], to=onnx.TensorProto.BOOL),
        helper.make_node("If", ["true"], ["z"], then_branch=branch, else_branch=branch),
    ]
    one = numpy_helper.from_array(np.array(1), "one")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights("w"), one])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    (folder / "parts").mkdir(parents=True)
    for number, tensor in enumerate(onnx.external_data_helper._get_all_tensors(made)):
        if tensor.name != "one":
            onnx.external_data_helper.set_external_data(tensor, f"parts/{tensor.name}{number}.data")
    onnx.save(made, folder / "net.onnx")
    return folder / "net.onnx"


def test_external_weights_belong_to_an_onnx_model(tmp_path):
    file = external_weights_model(tmp_path / "model")
    model = Model(file)
    places = sorted(path.relative_to(file.parent).as_posix() for path in model.payload()[1:])
    assert len(places) == 3 and {place[:7] for place in places} == {"parts/w", "parts/v"}
    assert model.payload()[0] == file and model.sizes()["raw"] == file.stat().st_size + 3 * 64
    before = model.digest
    (file.parent / places[0]).write_bytes(bytes(64))
    assert Model(file).digest != before
    (file.parent / places[0]).unlink()
    with pytest.raises(ComponentError, match=f"weights in '{places[0]}'"):
        Model(file).payload()


GROUP = b"\xa3\x06\xa4\x06"  # begin and end of a group, field 100, which runtimes skip
LONG_KEY = b"\xba\x80\x80\x80\x10"  # field 7, the graph, for readers of 32 bits: the others see field 2**29 + 7


@pytest.mark.parametrize(
    "hide", [lambda data: GROUP + data, lambda data: data + GROUP, lambda data: data.replace(b":", LONG_KEY, 1)]
)
def test_an_onnx_file_that_cannot_be_walked_is_refused(tmp_path, hide):
    import onnxruntime

    file = external_weights_model(tmp_path / "model")
    data = onnx_bytes_with_the_graph_last(file)
    file.write_bytes(hide(data))
    session = onnxruntime.InferenceSession(file)  # the runtime reads the weights
    assert np.isfinite(session.run(None, {"x": np.eye(4, dtype=np.float32)})[0]).all()
    for read in (Model.open, lambda path: Model(path).payload(), lambda path: Model(path).digest):
        with pytest.raises(ComponentError, match="the weights in other files must be known"):
            read(file)


def onnx_bytes_with_the_graph_last(file: Path) -> bytes:
    """Return the content of an ONNX file whose first colon is the key of its graph."""
    import onnx

    model = onnx.load(file, load_external_data=False)
    rest = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import).SerializeToString()
    assert b":" not in rest
    return rest + onnx.ModelProto(graph=model.graph).SerializeToString()


def test_external_weights_of_functions_are_found(tmp_path):
    import onnx
    from onnx import helper

    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret")
    function = onnx.FunctionProto(name="f", attribute_proto=[helper.make_attribute("value", tensor)])
    graph = onnx.GraphProto(initializer=[tensor])
    for part in ({"functions": [function]}, {"training_info": [onnx.TrainingInfoProto(initialization=graph)]}):
        (tmp_path / "m.onnx").write_bytes(onnx.ModelProto(**part).SerializeToString())
        with pytest.raises(ComponentError, match="weights in 'secret'"):
            Model.open(tmp_path / "m.onnx")


def test_links_next_to_a_bare_file_are_refused(tmp_path, folder):
    file = external_weights_model(tmp_path / "model")
    Model.open(file)
    weights = Model(file).payload()[1]
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ComponentError, match="a link to"):
        Model.open(file)
    (folder / "bare" / "net.xml").write_text("<net/>")
    (folder / "bare" / "net.bin").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ComponentError, match="a link to"):
        Model.open(folder / "bare" / "net.xml")


def test_an_openvino_file_that_is_an_onnx_file_is_refused(tmp_path):
    import openvino

    file = external_weights_model(tmp_path / "model").rename(tmp_path / "model" / "net.xml")
    file.with_suffix(".bin").touch()
    assert openvino.Core().compile_model(file, "CPU").outputs  # from the weights of the ONNX file
    with pytest.raises(ComponentError, match=r"net\.xml: no XML"):
        Model.open(file)


def test_a_litert_file_with_weights_in_other_files_is_refused(tmp_path):
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def write(file: Path, **parts) -> Path:
        builder = flatbuffers.Builder()
        builder.Finish(schema.ModelT(version=3, **parts).Pack(builder), b"TFL3")
        file.write_bytes(builder.Output())
        return file

    weights = schema.ExternalBufferT(id=1, group=0, offset=0, length=4)
    groups = [schema.ExternalBufferGroupT(name="/secret")]
    assert TFLiteModel.open(write(tmp_path / "m.tflite", description="m", signatureDefs=[schema.SignatureDefT()]))
    for parts in ({"externalBufferGroups": groups}, {"externalBuffers": [weights]}):
        with pytest.raises(ComponentError, match="weights in other files"):
            TFLiteModel.open(write(tmp_path / "m.tflite", **parts))


def test_weights_in_a_linked_folder_belong_to_a_saved_model(tmp_path):
    model = tmp_path / "model"
    (tmp_path / "store").mkdir()
    model.mkdir()
    (model / "saved_model.pb").write_text("graph")
    (tmp_path / "store" / "variables.index").write_text("weights")
    (model / "variables").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "up").symlink_to(model)
    before = Model(model).digest
    assert [file.name for file in Model(model).payload()] == ["saved_model.pb", "variables.index"]
    (tmp_path / "store" / "variables.index").write_text("others")
    assert Model(model).digest != before


def test_examples_have_splits_or_are_one_split(folder):
    examples = Examples.open(folder / "split")
    assert {name: [file.name for file in files] for name, files in examples.splits.items()} == {
        "eval": ["data_tfrecord-0.gz"],
        "train": ["data_tfrecord-0.gz"],
    }
    assert list(Examples.open(folder / "bare_records").splits) == ["all"]
    assert list(Examples.open(folder / "bare_records" / "part.tfrecord").splits) == ["all"]
    with pytest.raises(ComponentError, match="one of its splits: eval, train"):
        examples.split("test")


def test_unique_names_numbers_equal_names(folder):
    models = [Model(folder / "m.h5"), Model(folder / "bare"), Model(folder / "m.h5")]
    assert unique_names(models) == ["m.h5", "bare", "m.h5 (2)"]


def test_report_write_rejects_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        Evaluation(tmp_path / "e").write({"accuracy": float("nan")})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Trainer/model/6", "Trainer"),
        ("Trainer.wide/model/12", "Trainer.wide"),
        ("Trainer/model/6/Format-Serving", "Trainer"),
        ("Pusher/pushed_model/8", "Pusher"),
        ("mobilenet/1", "mobilenet"),  # a version of TensorFlow Serving, or of a hub
        ("Served/mobilenet/1", "mobilenet"),
        ("trained/model", "model"),
        ("Trainer/model/6/best.keras", "best.keras"),
    ],
)
def test_a_number_is_no_name_of_a_model(tmp_path, path, name):
    assert Model(tmp_path / path).name == name


def test_unique_names_prepends_the_lineage_to_equal_names(tmp_path):
    def made(name: str, *steps: tuple[str, str]) -> Model:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "m.tflite").write_text(f"{name} {steps}")
        lineage = [{"name": name, "component": component, "digest": f"{name}"} for name, component in steps]
        (folder / "model_card.json").write_text(json.dumps({"name": name, "lineage": [start, parent, *lineage]}))
        return Model(folder)

    start, parent = {"name": "start", "component": "train", "digest": "0"}, None
    trained = made("trained")
    parent = {"name": "trained", "component": "train", "digest": trained.digest}
    zeros, shared = ("pruned 80%", "prune"), ("clustered 32", "cluster")
    int8 = [made("tflite int8", *steps) for steps in ([], [zeros], [zeros, ("folded", "fold_batch_norm"), shared])]
    slim = made("pruned 50% of flops")
    assert unique_names([trained, int8[2], slim]) == ["trained", "tflite int8", "pruned 50% of flops"]
    assert unique_names([trained, *int8, slim, int8[1]]) == [
        "trained",
        "tflite int8",
        "pruned 80%, tflite int8",
        "pruned 80% + clustered 32, tflite int8",
        "pruned 50% of flops",
        "pruned 80%, tflite int8 (2)",
    ]


@pytest.mark.parametrize("source", ["module.py", "written", "written/module.py"])
def test_python_module_opens_a_file_or_the_folder_of_a_step(folder, source):
    opened = PythonModule.open(folder / source)
    assert opened.path.is_file()
    assert opened.path.name == "module.py"
    assert [file.name for file in opened.files()] == ["module.py"]
