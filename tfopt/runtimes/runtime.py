"""A loaded model of any format: check of its inputs, call, release."""

import abc
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec, describe_specs, dtype_name
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

Arrays = Mapping[str, NDArray[Any]]


class Runtime(abc.ABC):
    """A loaded model."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]  # in the order of the signature
    _checked: Mapping[str, Any] = MappingProxyType({})

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs for one batch of named inputs. Not thread-safe.

        Raises:
            ComponentError: If the inputs do not match the signature (see `check`).
        """
        types = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        if types != self._checked:  # calls of a benchmark are equal: check the first only
            self.check(arrays)
            self._checked = types
        return self.call(arrays)

    @abc.abstractmethod
    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model on checked inputs. Each runtime implements this method; `run` calls it."""

    def check(self, arrays: Arrays) -> None:
        """Raise ComponentError unless names, dtypes and shapes are those of `inputs`."""
        expected = f"inputs {describe_specs(self.inputs)}"
        for name, spec in self.inputs.items():
            if name not in arrays:
                raise ComponentError(f"no input {name!r}", expected, nearest(name, arrays))
            array = arrays[name]
            fits = not spec.ranked or _fits(array.shape, spec.shape)
            dtype = dtype_name(array)
            if dtype != spec.dtype or not fits:
                received = TensorSpec(dtype, array.shape)
                raise ComponentError(
                    f"input {name!r}: {received}", str(spec), f"convert it to {spec.dtype}, and reshape it"
                )
        for name in arrays:
            if name not in self.inputs:
                raise ComponentError(f"input {name!r}", expected, nearest(name, self.inputs))

    def close(self) -> None:  # noqa: B027  (most runtimes have nothing to release)
        """Release the model's resources."""

    def __enter__(self) -> Self:
        """Return the runtime itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the runtime."""
        self.close()


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    same_rank = len(shape) == len(expected)
    return same_rank and all(size in (None, actual) for size, actual in zip(expected, shape, strict=True))
