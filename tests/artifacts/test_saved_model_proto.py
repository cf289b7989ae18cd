"""Test that a SavedModel is checked before a runtime loads it."""

import subprocess

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

from tfopt import runtimes
from tfopt.artifacts import CARD, Model
from tfopt.artifacts.saved_model_proto import check_signature, read_meta_graph
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.errors import ComponentError


@pytest.fixture
def saved(tmp_path):
    module = tf.Module()
    module.scale = tf.Variable(2.0)
    serve = tf.function(lambda x: {"y": x * module.scale}, input_signature=[tf.TensorSpec([None, 3], name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    return tmp_path / "model"


def _rename_output(graph):
    next(iter(graph.signature_def["serving_default"].outputs.values())).name = "nowhere:0"


def _retype_input(graph):
    next(iter(graph.signature_def["serving_default"].inputs.values())).dtype = tf.string.as_datatype_enum


def _call_itself(graph):
    for function in graph.graph_def.library.function:
        for node in function.node_def:
            if node.op == "StatefulPartitionedCall":
                node.attr["f"].func.name = function.signature.name


def _leave_folder(graph):
    graph.asset_file_def.add(filename="../../../etc/hostname").tensor_info.name = "Const:0"


def _negate_size(graph):
    next(iter(graph.signature_def["serving_default"].inputs.values())).tensor_shape.dim[1].size = -5


DAMAGE = [
    (_negate_size, r"'x' has a negative size"),
    (_rename_output, r"'y': no tensor 'nowhere:0'"),
    (_retype_input, r"'x': string"),
    (_call_itself, r"calls itself"),
    (_leave_folder, r"asset '\.\./\.\./\.\./etc/hostname'"),
    (lambda graph: graph.signature_def.clear(), "no signatures"),
    (lambda graph: graph.meta_info_def.ClearField("tags"), "a graph tagged serve"),
]


@pytest.mark.parametrize(("edit", "message"), DAMAGE, ids=[message for _, message in DAMAGE])
def test_a_damaged_graph_is_refused_and_not_passed_through(saved, tmp_path, edit, message):
    proto = Proto.FromString((saved / "saved_model.pb").read_bytes())
    edit(proto.meta_graphs[0])
    (saved / "saved_model.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(ComponentError, match=message):
        fold_batch_norm(saved, tmp_path / "folded")
    assert not (tmp_path / "folded").exists()


def test_the_graph_for_serving_is_read(saved):
    assert "serving_default" in read_meta_graph(saved).signature_def


def test_links_out_of_the_folder_are_refused_and_links_within_it_are_not(saved, tmp_path):
    (saved / "assets").mkdir(exist_ok=True)
    (saved / "assets" / "words.txt").write_text("red\n")
    (saved / "assets" / "link.txt").symlink_to("words.txt")
    assert Model.open(saved).saved_model == saved
    (tmp_path / "elsewhere").symlink_to(saved)
    assert Model.open(tmp_path / "elsewhere").saved_model
    (saved / "assets" / "secret.txt").symlink_to("/etc/passwd")
    with pytest.raises(ComponentError, match=r"a link to /etc/passwd(?s:.*)cp -rL"):
        Model.open(saved)


def test_a_folder_in_the_place_of_the_layers_of_keras_2_is_refused(saved):
    (saved / "keras_metadata.pb").mkdir()
    with pytest.raises(ComponentError, match=r"keras_metadata\.pb: a folder"):
        Model.open(saved)


@pytest.mark.parametrize("links", [{"assets/up": ".."}, {"loop": "."}, {"assets/a": "../more", "more/b": "../assets"}])
def test_links_by_which_a_folder_contains_itself_are_refused(saved, links):
    for link, target in links.items():
        (saved / link).parent.mkdir(exist_ok=True)
        (saved / link).symlink_to(target)
    with pytest.raises(ComponentError, match=r"which contains it(?s:.*)remove the link: rm ") as caught:
        Model.open(saved)
    subprocess.run(caught.value.fix.removeprefix("remove the link: "), shell=True, check=True)
    assert Model.open(saved).saved_model


@pytest.mark.parametrize("text", ["", "[]", "null", '{"lineage": 5}', "[" * 100_000, '{"calibration": {"records": 3}}'])
def test_a_damaged_model_card_is_refused(saved, text):
    (saved / CARD).write_text(text)
    with pytest.raises(ComponentError, match=CARD):
        Model(saved).card  # noqa: B018


def test_a_signature_that_names_no_tensor_is_refused(saved):
    check_signature(saved, "serving_default")
    with pytest.raises(ComponentError, match=r"no signature 'serving'(?s:.*)serving_default"):
        check_signature(saved, "serving")
    proto = Proto.FromString((saved / "saved_model.pb").read_bytes())
    _rename_output(proto.meta_graphs[0])
    (saved / "saved_model.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(ComponentError, match="no tensor 'nowhere:0'"):
        check_signature(saved, "serving_default")


def test_an_asset_out_of_the_folder_of_a_frozen_model_is_not_read(saved, tmp_path):
    folded = fold_batch_norm(saved, tmp_path / "folded")["folded"]
    file = folded.saved_model / "saved_model.pb"
    proto = Proto.FromString(file.read_bytes())
    _leave_folder(proto.meta_graphs[0])
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(ComponentError, match=r"asset '\.\./\.\./\.\./etc/hostname'"):
        runtimes.load(folded)
