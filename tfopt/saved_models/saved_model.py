"""Read a SavedModel as a frozen model, and write a frozen model as a SavedModel.

A frozen model has no variables: their values are constants of the graph, and cannot be trained or restored. Variables
that the model writes while it serves stay, if the reader allows them; otherwise such a model is refused.

The written SavedModel has one MetaGraph with an initialization op and no object graph. This is TensorFlow's older form,
the only one in which several signatures share one graph. ``tf.saved_model.load``, TensorFlow Serving and the converters
read both forms.
"""

import contextlib
import functools
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.artifacts.reproducible_files import make_saved_model_reproducible
from tfopt.artifacts.saved_model_proto import DAMAGED, INIT, asset_files, init_ops, read_meta_graph
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import PREDICT, Endpoint, Frozen, Signature
from tfopt.graph_def import data_type
from tfopt.keras_models.io import place_saved_model
from tfopt.processes.call_limit import EndlessError, call_within, limit_seconds
from tfopt.saved_models import freezer as freezing
from tfopt.saved_models.effects import find_effects, make_inert
from tfopt.saved_models.marked_functions import replaced_graph
from tfopt.saved_models.removed_ops import has_successors, replace_removed

OWN = {INIT, "__saved_model_train_op"}
REMOVED = re.compile(r"^Op \w+ is not available in GraphDef version \d+")
MAX_BYTES = 2**31 - 1  # of one protocol buffer


def read(model_path: Path, *, state: bool = False, inert: bool = False, only: str | None = None) -> Frozen:
    """Read the SavedModel in a folder, of TensorFlow 1 or 2, with all of its signatures or the one that is named.

    Operations that TensorFlow has removed are replaced by their successors (`removed_ops`). With ``state``, variables
    that the model writes, and mutable tables, are allowed and stay what they are. With ``inert``, operators that reach
    outside of the model are allowed, and neither they nor the initialization of such a model run.

    Raises:
        ComponentError: If it cannot be loaded, has no signatures, has inputs or outputs that are not dense tensors,
            changes its variables, or has state outside the graph (mutable tables, iterators, …).
    """
    import tensorflow as tf

    proto = read_meta_graph(model_path, effects=inert)
    effects = find_effects(proto) if inert else []
    if effects:
        make_inert(proto, effects, model_path)
    keys = sorted(set(proto.signature_def) - OWN)
    keys = [only] if only in keys else keys
    if not any(proto.signature_def[key].outputs for key in keys):
        raise ComponentError(f"{model_path}: no signatures", "at least one", "export it with a signature")
    assets = {item.tensor_info.name: model_path / "assets" / item.filename for item in asset_files(proto)}
    rewritten = bool(effects) or has_successors(proto.graph_def)
    proto.graph_def.CopyFrom(replace_removed(proto.graph_def))
    with (
        replaced_graph(model_path, proto) if rewritten else contextlib.nullcontext(model_path) as folder,
        tf.Graph().as_default(),
        tf.compat.v1.Session() as session,
    ):
        try:
            load = functools.partial(
                tf.compat.v1.saved_model.load, session, list(proto.meta_info_def.tags), str(folder)
            )
            loaded = call_within(limit_seconds(proto.ByteSize()), load, f"loading {model_path}", session.close)
        except EndlessError:
            raise
        except Exception as error:
            expected, fix = "a SavedModel that TensorFlow can load", DAMAGED
            if REMOVED.search(first_line(error)):
                expected = "operations that this TensorFlow runs, or removed ones that have a successor"
                fix = (
                    "export it with a newer TensorFlow; or pass its graph as a frozen graph, .pb, to optimize_graph, "
                    "with inputs behind this operation, or outputs before it"
                )
            raise ComponentError(f"{model_path}: {first_line(error)}", expected, fix) from error
        _initialize_sources(session, loaded.graph_def)
        if inert:  # neither run nor converted: converters find recurrent layers of Keras 2 by functions with this mark
            for function in loaded.graph_def.library.function:
                function.attr.pop("api_implements", None)
        signatures = {key: _signature(key, proto.signature_def[key], session.graph, model_path) for key in keys}
        frozen = Frozen(loaded.graph_def, signatures, next(iter(init_ops(proto)), None), assets)
        return freezing.freeze(frozen, session, state=state, python=bool(effects))


def _initialize_sources(session: Any, graph: Any) -> None:
    """Give variables that the model reads, and a session did not restore, the values of their restored copies.

    ``tf.saved_model.save`` copies the variables of a Keras 3 model, also of one in a ``tf.Module``: the signatures read
    the original ones, from which the copies are initialized, and the checkpoint has the copies.
    """
    import tensorflow as tf

    variables = {node.name: node for node in graph.node if node.op == "VarHandleOp"}
    reads = {node.name: node.input[0] for node in graph.node if node.op == "ReadVariableOp"}
    assigned = {reads.get(node.input[1]): node.input[0] for node in graph.node if node.op == "AssignVariableOp"}
    copies = {source: copy for source, copy in assigned.items() if source in variables and copy in variables}
    if not copies:
        return
    with session.graph.as_default():  # each run after a change of the graph takes long in large graphs: two in all
        handles = {name: session.graph.get_tensor_by_name(f"{name}:0") for pair in copies.items() for name in pair}
        is_set = session.run({name: tf.raw_ops.VarIsInitializedOp(resource=handles[name]) for name in handles})
        initialize = []
        for source, copy in copies.items():
            if is_set[copy] and not is_set[source]:
                dtype = tf.as_dtype(variables[source].attr["dtype"].type)
                value = tf.raw_ops.ReadVariableOp(resource=handles[copy], dtype=dtype)
                initialize.append(tf.raw_ops.AssignVariableOp(resource=handles[source], value=value))
        if initialize:
            session.run(initialize)


@contextlib.contextmanager
def opened(model: Model, *, state: bool = False, inert: bool = False) -> Iterator[Frozen]:
    """Read a model artifact as `read` does. A Keras file is exported first, to a folder that exists until the end."""
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        folder = model.saved_model
        if folder is None:
            folder = Path(scratch, "Format-Serving")
            place_saved_model(model, folder)
        yield read(folder, state=state, inert=inert)


def write(frozen: Frozen, folder: Path) -> None:
    """Write a SavedModel with the same signatures into a folder: names, dtypes, shapes, tables and assets.

    Raises:
        ComponentError: If the graph is larger than 2 GiB, the limit for a SavedModel without variables, or an asset is
            missing.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    proto = Proto(saved_model_schema_version=1)
    meta = proto.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = tf.version.VERSION
    meta.meta_info_def.tensorflow_git_version = tf.version.GIT_VERSION
    meta.graph_def.CopyFrom(frozen.graph)
    for key, signature in frozen.signatures.items():
        written = meta.signature_def[key]
        written.method_name = signature.method
        for ends, side in ((signature.inputs, written.inputs), (signature.outputs, written.outputs)):
            for name, end in ends.items():
                side[name].name, side[name].dtype = end.tensor, data_type(end.dtype)
                side[name].tensor_shape.CopyFrom(tf.TensorShape(end.shape).as_proto())
    if frozen.initializer:
        meta.collection_def["saved_model_main_op"].node_list.value.append(frozen.initializer)
    folder.mkdir(parents=True, exist_ok=True)
    _write_assets(meta, frozen.assets, folder)
    if proto.ByteSize() > MAX_BYTES:
        raise ComponentError(f"a graph of {proto.ByteSize()} bytes", "at most 2 GiB", "leave this model as it is")
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString(deterministic=True))
    if frozen.graph.library.function:  # TensorFlow numbers those of loops when variables become constants
        make_saved_model_reproducible(folder)


def _signature(key: str, proto: Any, graph: Any, where: Path) -> Signature:
    sides = (proto.inputs, proto.outputs)
    inputs, outputs = ({name: _endpoint(key, name, side[name]) for name in sorted(side)} for side in sides)
    for name, end in (inputs | outputs).items():
        try:
            dtype = graph.get_tensor_by_name(end.tensor).dtype.base_dtype.name
        except (KeyError, ValueError, TypeError) as error:
            received, expected = f"no tensor {end.tensor!r}", "a tensor of its graph"
            raise _damaged(f"{where}: signature {key!r}, {name!r}: {received}", expected) from error
        if dtype != end.dtype:
            raise _damaged(f"{where}: signature {key!r}, {name!r}: {end.dtype}", f"{dtype}, as the tensor has")
    return Signature(inputs, outputs, proto.method_name or PREDICT)


def _endpoint(key: str, name: str, info: Any) -> Endpoint:
    import tensorflow as tf

    if info.WhichOneof("encoding") is None:
        raise _damaged(f"signature {key!r}: {name!r} has no tensor", "a tensor of the graph")
    if info.WhichOneof("encoding") != "name":
        received = f"signature {key!r}: {name!r} is a {info.WhichOneof('encoding')}"
        raise freezing.CannotFreezeError(received, "plain tensors", "export the model with dense inputs and outputs")
    try:
        shape, dtype = tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype).name
    except (TypeError, ValueError) as error:
        raise _damaged(f"signature {key!r}: {name!r}: {first_line(error)}", "a shape and a type") from error
    return Endpoint(info.name, dtype, None if shape.rank is None else tuple(shape.as_list()))


def _damaged(received: str, expected: str) -> ComponentError:
    return ComponentError(received, expected, "export it again; the file is damaged or was edited")


def _write_assets(meta: Any, assets: dict[str, Path], folder: Path) -> None:
    for number, (tensor, file) in enumerate(sorted(assets.items())):
        used_names = {item.filename for item in meta.asset_file_def}
        name = f"{number}_{file.name}" if file.name in used_names else file.name
        meta.asset_file_def.add(filename=name).tensor_info.name = tensor
        (folder / "assets").mkdir(exist_ok=True)
        try:
            shutil.copyfile(file, folder / "assets" / name)
        except OSError as error:
            raise ComponentError(f"asset {error}", "the model's files", "export the model again") from error
