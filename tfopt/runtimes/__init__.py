"""One way to run any model: by input name, on numpy arrays. Parity, `evaluate` and `benchmark` use nothing else."""

import abc
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError, nearest
from tfopt.runtimes import environment

Arrays = Mapping[str, NDArray[Any]]


class Runtime(abc.ABC):
    """A loaded model.

    Attributes:
        inputs: What it takes, by name.
        outputs: What it returns, by name, in the order of its signature.
    """

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    _accepted: Mapping[str, Any] = MappingProxyType({})

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs for one batch of named inputs. Not safe under threads.

        Raises:
            ComponentError: When the inputs are not those the model takes (see `check`).
        """
        like = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        if like != self._accepted:  # a benchmark's thousandth equal call need not be checked again
            self.check(arrays)
            self._accepted = like
        return self.call(arrays)

    @abc.abstractmethod
    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model on inputs that were checked; what each runtime implements, and `run` calls."""

    def check(self, arrays: Arrays) -> None:
        """Raise ComponentError unless names, dtypes and shapes are those of `inputs`."""
        for name, spec in self.inputs.items():
            if name not in arrays:
                raise ComponentError(f"no input {name!r}", f"inputs {self._expected()}", nearest(name, arrays))
            array = arrays[name]
            fits = not spec.ranked or _fits(array.shape, spec.shape)
            kind = "string" if array.dtype.kind in "OSU" else array.dtype.name
            if kind != spec.dtype or not fits:
                got = TensorSpec(kind, array.shape)
                raise ComponentError(f"input {name!r}: {got}", str(spec), f"convert it to {spec.dtype}, and reshape it")
        for name in arrays:
            if name not in self.inputs:
                raise ComponentError(f"input {name!r}", f"inputs {self._expected()}", nearest(name, self.inputs))

    def close(self) -> None:  # noqa: B027  (most runtimes have nothing to give back)
        """Give back what the model holds."""

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _expected(self) -> str:
        return ", ".join(f"{name}: {spec}" for name, spec in self.inputs.items())


def load(model: Model, *, signature: str = "serving_default", threads: int | None = None) -> Runtime:
    """Load a model with the runtime of its format (``Model.format``).

    A model that asks for other settings than this process has, as `configure_runtime` makes it, runs in a process of
    its own that has them, until the runtime is closed.

    Args:
        model: Any model artifact.
        signature: Which signature, where the format has several.
        threads: How many threads one call may use; the runtime's own choice when None.

    Raises:
        ComponentError: When the file is damaged, the signature is not there, or the model could not be made at all.
    """
    if model.failure:
        raise ComponentError(f"not made: {model.failure}", "a model", "mend the step that was to make it")
    if variables := environment.lacking(model):
        from tfopt.runtimes.subprocess_runtime import Elsewhere

        return Elsewhere(model, variables, signature=signature, threads=threads)
    module = importlib.import_module(f"tfopt.runtimes.{model.format}")
    runtime: Runtime = module.load(model, signature=signature, threads=threads)
    return runtime


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    same_rank = len(shape) == len(wanted)
    return same_rank and all(want in (None, have) for want, have in zip(wanted, shape, strict=True))
