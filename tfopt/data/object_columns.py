"""Columns of Python objects: the names of arrays and data frames, and their values as examples store them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.value_types import Tensors

ACCEPTED = (
    'arrays (x, y), or ({"NAME": x}, {"NAME": y}), a DataFrame or a mapping of arrays with the label among its '
    'columns, a tf.data.Dataset of such elements, a mapping of splits, {"train": …, "eval": …}, to one of these, or '
    "the path of examples"
)

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Naming:
    """Names for data without names: those of the inputs and outputs of a model, and that of the label."""

    label: str
    inputs: Mapping[str, TensorSpec] | None = None  # the inputs of the model; None if no model is known
    outputs: tuple[str, ...] = ()  # names of its outputs
    has_order: bool = False  # True if both are in the order in which Keras takes lists
    needs_label: bool = False  # True if records without a label are of no use


def is_frame(value: object) -> bool:
    """Test for a pandas DataFrame, without importing pandas."""
    return "pandas" in sys.modules and isinstance(value, sys.modules["pandas"].DataFrame)


def named_columns(value: object, naming: Naming) -> Columns:
    """Return the columns of (x, y), of x with its labels among its columns, or of x alone.

    Raises:
        ComponentError: If names are missing, or the arrays do not belong together.
    """
    columns = {name: _to_column(name, values) for name, values in by_name(value, naming).items()}
    lengths = {name: len(array) for name, array in columns.items()}
    if len(set(lengths.values())) != 1:
        received = f"arrays of {', '.join(f'{name}: {count}' for name, count in lengths.items()) or 'nothing'} records"
        raise ComponentError(received, "arrays of the same length", "pass x and y of the same records")
    return columns


def _to_column(name: str, values: Any) -> NDArray[Any]:
    """Return an array as examples store it: float32, int64, or bytes as objects; the first dimension is the records."""
    if hasattr(values, "row_splits") or hasattr(values, "dense_shape"):
        received = f"{name}: a {type(values).__name__}"
        raise ComponentError(received, "a dense array", "call to_tensor(), or tf.sparse.to_dense, on it")
    if not _is_array(values):
        raise ComponentError(f"{name}: {type_name(values)}", ACCEPTED, "pass an array with one entry for each record")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        received = f"{name}: {type(values).__name__}: {first_line(error)}"
        expected = "numbers or texts of one shape for each record"
        raise ComponentError(received, expected, "pad or convert them") from error
    if not array.ndim:
        received = f"{name}: one value"
        raise ComponentError(received, "an array with one entry for each record", "pass the records in an array")
    if array.dtype.kind == "O":
        array = _from_objects(name, array)
    if array.dtype.kind in "OSUT":
        texts = [text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()]
        return np.array(texts, object).reshape(array.shape)
    if array.dtype.kind in "biu":
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise ComponentError(f"{name}: {array.max()}", "integers of 64 bits with a sign", "use other identifiers")
        return array.astype(np.int64)
    if "float" not in array.dtype.name:
        received = f"{name}: values of {array.dtype}"
        raise ComponentError(received, "numbers or texts", f"convert {name}, for example with .astype('int64')")
    with np.errstate(over="ignore"):
        stored = array.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(stored).all(axis=tuple(range(1, stored.ndim))))
    if len(wrong):
        received = f"{name}: NaN or infinite in {len(wrong)} of {len(stored)} records, the first is record {wrong[0]}"
        expected = "finite numbers that float32 can hold"
        raise ComponentError(received, expected, "leave these records out, of x and of y, or fill the values in")
    return stored


def _from_objects(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of texts, still objects, or of numbers."""
    items = array.ravel().tolist()
    if all(isinstance(item, str | bytes) for item in items):
        return array
    missing = sum(
        item is None or type(item).__name__ in ("NAType", "NaTType") or (isinstance(item, float) and np.isnan(item))
        for item in items
    )
    if missing:
        fix = "leave these records out (dropna), or fill them in (fillna)"
        raise ComponentError(f"{name}: {missing} of {len(items)} values are missing", "a value in each record", fix)
    if all(isinstance(item, bool | int | float | np.number | np.bool_) for item in items):
        return np.array(items).reshape(array.shape)
    kinds = sorted({type(item).__name__ for item in items})
    fix = "convert them, and pad lists to one length"
    raise ComponentError(f"{name}: objects of {', '.join(kinds)}", "numbers or texts, as many for each record", fix)


def by_name(value: Any, naming: Naming) -> Tensors:
    """Return arrays, or specs of tensors, by feature name, and labels by theirs."""
    is_pair = isinstance(value, tuple) and len(value) in (2, 3)  # the third are weights of a training
    x, y = value[:2] if is_pair else (value, None)
    if isinstance(value, tuple) and not is_pair:
        raise ComponentError(f"a tuple of {len(value)}", ACCEPTED, "pass (x, y)")
    features, labels = _features(x, naming), {} if y is None else _labels(y, naming)
    if both := features.keys() & labels.keys():
        raise ComponentError(f"{', '.join(both)} in x and in y", "different names", "rename one of them, as label=NAME")
    return features | labels


def _features(x: Any, naming: Naming) -> Tensors:
    inputs = list(naming.inputs or ())
    if is_frame(x):
        columns = {str(name): x[name] for name in x.columns}
        label = {naming.label: columns[naming.label]} if naming.label in columns else {}
        if len(inputs) == 1 and inputs[0] not in columns and len(columns) > len(label):  # as Model.fit takes it
            return {inputs[0]: x[[name for name in x.columns if str(name) not in label]].to_numpy()} | label
        return columns
    if isinstance(x, Mapping):
        return {str(name): values for name, values in x.items()}
    if isinstance(x, list | tuple) and len(x) == len(inputs) > 1 and naming.has_order:
        return dict(zip(inputs, x, strict=True))
    if len(inputs) == 1:
        return {inputs[0]: x}
    if not (_is_array(x) or hasattr(x, "shape")):
        raise ComponentError(type_name(x), ACCEPTED, "pass one of these")
    expected = f"the name of each input: {', '.join(inputs)}" if inputs else "a name, because no model is known here"
    example = ", ".join(f'"{name}": …' for name in inputs or ["NAME"])
    raise ComponentError("x without names", expected, f"pass {{{example}}} as x")


def _labels(y: Any, naming: Naming) -> Tensors:
    if isinstance(y, Mapping) or (is_frame(y) and len(y.columns) > 1):
        return {str(name): y[name] for name in y}
    if is_frame(y):
        return {naming.label: y.to_numpy()}
    if isinstance(y, list | tuple) and len(y) == len(naming.outputs) > 1:
        if not naming.has_order:
            example = ", ".join(f'"{name}": …' for name in naming.outputs)
            raise ComponentError("a list as y", "labels by name of the output", f"pass {{{example}}} as y")
        return dict(zip(naming.outputs, y, strict=True))
    return {naming.label: y}


def _is_array(value: object) -> bool:
    return isinstance(value, list | tuple) or hasattr(value, "__array__")


def type_name(value: object) -> str:
    """Return a type as errors name it, with its module."""
    kind = type(value)
    return f"an object of type {kind.__module__}.{kind.__qualname__}".replace(" builtins.", " ")
