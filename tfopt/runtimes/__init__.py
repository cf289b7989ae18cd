"""Run models of every format with one interface: numpy arrays by input name.

May import `tfopt.artifacts`, `tfopt.data`, `tfopt.keras_models`, `tfopt.tensorrt` and what is below them.
"""

import abc
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec, dtype_name
from tfopt.errors import ComponentError, nearest
from tfopt.runtimes import environment

Arrays = Mapping[str, NDArray[Any]]


class Runtime(abc.ABC):
    """A loaded model.

    Attributes:
        inputs: Dtype and shape of each input by name.
        outputs: Dtype and shape of each output by name, in the order of the signature.
    """

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
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
        for name, spec in self.inputs.items():
            if name not in arrays:
                raise ComponentError(f"no input {name!r}", f"inputs {self._expected()}", nearest(name, arrays))
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
                raise ComponentError(f"input {name!r}", f"inputs {self._expected()}", nearest(name, self.inputs))

    def close(self) -> None:  # noqa: B027  (most runtimes have nothing to release)
        """Release the model's resources."""

    def __enter__(self) -> Self:
        """Return the runtime itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the runtime."""
        self.close()

    def _expected(self) -> str:
        return ", ".join(f"{name}: {spec}" for name, spec in self.inputs.items())


def load(model: Model, *, signature: str | None = None, threads: int | None = None) -> Runtime:
    """Load a model with the runtime of its format (``Model.format``).

    A model that requires environment variables which this process does not have, as set by `configure_runtime`, runs in
    a process of its own until the runtime is closed. A model with `Model.preprocessing` has the inputs of that.

    Args:
        model: Any model artifact.
        signature: Key of the signature, for formats with several; None for ``model.signature``.
        threads: Number of threads per call; None for the runtime's default.

    Raises:
        ComponentError: If the file is damaged, the signature does not exist, or the artifact is a failed model.
    """
    if model.failure:
        raise ComponentError(f"not made: {model.failure}", "a model", "fix the step that should make it")
    signature = signature or model.signature
    if variables := environment.missing_variables(model):
        from tfopt.runtimes.subprocess_runtime import SubprocessRuntime

        return SubprocessRuntime(model, variables, signature=signature, threads=threads)
    module = importlib.import_module(f"tfopt.runtimes.{model.format}")
    runtime: Runtime = module.load(model, signature=signature, threads=threads)
    if not runtime.outputs:
        raise ComponentError(
            f"{model.uri}: a model without outputs", "at least one output", "convert or export it again"
        )
    if model.preprocessing is None:
        return runtime
    from tfopt.runtimes.preprocessed import PreprocessedRuntime

    return PreprocessedRuntime(load(Model(model.preprocessing)), runtime)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    same_rank = len(shape) == len(expected)
    return same_rank and all(size in (None, actual) for size, actual in zip(expected, shape, strict=True))
