"""A loaded model of any format: check of its inputs, call, release."""

import abc
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Self

from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec, describe_specs, dtype_name
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.processes.call_limit import EndlessError, call_within, limit_seconds

Arrays = Mapping[str, NDArray[Any]]
Call = Callable[[Arrays], dict[str, NDArray[Any]]]


class Runtime(abc.ABC):
    """A loaded model.

    Attributes:
        size: Bytes of the model, with which the limit of calls grows.
        name: The model in errors.
    """

    size = 0
    name = "the model"
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]  # in the order of the signature
    _checked: Mapping[str, Any] = MappingProxyType({})
    _longest_s = 0.0  # per record, of all calls
    _endless: ComponentError | None = None

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs for one batch of named inputs. Not thread-safe.

        Raises:
            ComponentError: If the inputs do not match the signature (see `check`), or the call does not end in time.
        """
        return self.run_within_limit(self.run_without_limit, arrays)

    def run_without_limit(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs as `run` does, for calls whose time is measured: `run` hands them to another thread.

        The caller uses `run` before, which finds out whether calls end.
        """
        types = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        if types != self._checked:  # calls of a benchmark are equal: check the first only
            self.check(arrays)
            self._checked = types
        return self.call(arrays)

    def run_within_limit(self, call: Call, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the result of a method of this runtime for one batch; raise ComponentError if it does not end."""
        if self._endless:  # the call goes on
            raise self._endless
        records = max((len(array) for array in arrays.values() if array.ndim), default=1) or 1
        start = time.monotonic()
        try:
            limit_s = limit_seconds(self.size, records, self._longest_s)
            doing = f"a call of {self.name} with {records} records"
            outputs = call_within(limit_s, lambda: call(arrays), doing, self.stop)
        except EndlessError as error:
            self._endless = error
            raise
        self._longest_s = max(self._longest_s, (time.monotonic() - start) / records)
        return outputs

    @abc.abstractmethod
    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model on checked inputs. Each runtime implements this method; `run` calls it."""

    def stop(self) -> None:  # noqa: B027  (most runtimes cannot)
        """Stop a call that does not end."""

    def check(self, arrays: Arrays) -> None:
        """Raise ComponentError unless names, dtypes and shapes are those of `inputs`."""
        check_inputs(arrays, self.inputs)

    def close(self) -> None:  # noqa: B027  (most runtimes have nothing to release)
        """Release the model's resources."""

    def __enter__(self) -> Self:
        """Return the runtime itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the runtime."""
        self.close()


def check_inputs(arrays: Arrays, specs: Mapping[str, TensorSpec]) -> None:
    """Raise ComponentError unless names, dtypes and shapes of arrays are those of inputs."""
    expected = f"inputs {describe_specs(specs)}"
    for name, spec in specs.items():
        if name not in arrays:
            raise ComponentError(f"no input {name!r}", expected, nearest(name, arrays))
        received = TensorSpec(dtype_name(arrays[name]), arrays[name].shape)
        if received.dtype != spec.dtype or not _fits(received.shape, spec):
            fix = f"convert it to {spec.dtype}, and reshape it"
            raise ComponentError(f"input {name!r}: {received}", str(spec), fix)
    for name in arrays:
        if name not in specs:
            raise ComponentError(f"input {name!r}", expected, nearest(name, specs))


def _fits(shape: tuple[int | None, ...], spec: TensorSpec) -> bool:
    same_rank = len(shape) == len(spec.shape)
    sizes = zip(spec.shape, shape, strict=False)
    return not spec.ranked or (same_rank and all(expected in (None, size) for expected, size in sizes))


def signature_error(model: Model, name: str, signatures: Collection[str]) -> ComponentError:
    """Return the error for a signature that a model does not have."""
    fix = nearest(name, signatures) if signatures else "export it with a signature"
    return ComponentError(f"{model.uri}: no signature {name!r}", "one of its signatures", fix)
