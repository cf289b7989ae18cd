"""The door of `compile_xla`: what it promises."""

from typing import Annotated

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError


@component(image="tf")
def compile_xla(
    model: Input[SavedModel],
    compiled: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    batch_sizes: list[str] = ["1"],  # noqa: B006  (a declaration: never changed)
    static: bool = False,
    warm_up: bool = True,
    tolerance: Annotated[float, Between(0, 1)] = 1e-4,
) -> None:
    """Have XLA compile each signature of a model as one program, wherever it is loaded.

    The signatures keep their names, inputs and outputs, and are marked in the file (`jit_compile`), so that any
    TensorFlow compiles them at the first call of each input shape. That takes seconds: TensorFlow Serving does it
    before it serves, from the warm-up requests in ``assets.extra``, one for each batch size. Compile time, load time
    and the time of later calls are measured in a fresh process, beside the parent's; see ``report`` in the model card.

    XLA makes some models faster and others several times slower, on CPUs above all: hold the result against its parent
    with `benchmark`. The result is frozen: it has no variables. What XLA compiled is not stored in the model, since
    TensorFlow's cache of it belongs to a process and a machine.

    Args:
        model: A SavedModel or a Keras model.
        compiled: The same model, compiled when it is called.
        examples: Real inputs for the comparison and the warm-up, found by input name; random ones without them.
        batch_sizes: What will be asked for: each gets a warm-up request, and with `static` a signature.
        static: Whether to add a signature of a fixed batch size for each, ``serving_default_batch_32``.
        warm_up: Whether to write warm-up requests. They need tensorflow_serving.apis; the card says when it is missing.
        tolerance: Refuse the result when an output differs by more than this fraction of its range.

    Raises:
        ComponentError: When an operation cannot be compiled (all are named, with the reason), the model cannot be
            frozen or run, or the result answers otherwise.
    """
    for size in batch_sizes:
        if not size.isdigit() or not int(size):
            raise ComponentError(f"batch_sizes: {size!r}", "whole numbers above zero", "pass batch_sizes 1 32")
    from tfopt.components.compile_xla.compiling import compile_model

    sizes = sorted({int(size) for size in batch_sizes})
    compiled.metadata |= compile_model(model, compiled.path, examples, sizes, static, warm_up, tolerance)
