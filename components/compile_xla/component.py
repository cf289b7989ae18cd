"""The door of `compile_xla`: what it promises."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError
from tfopt.execution.failed_models import OnFailure


@component(image="tf")
def compile_xla(
    model: Input[SavedModel],
    compiled: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    mode: Literal["whole", "clusters"] = "whole",
    batch_sizes: list[str] = ["1"],  # noqa: B006  (a declaration: never changed)
    static: bool = False,
    warm_up: bool = True,
    cache: bool = False,
    tolerance: Annotated[float, Between(0, 1)] = 1e-4,
    on_failure: OnFailure = "raise",
) -> None:
    """Have XLA compile a model wherever it is loaded: each signature as one program, or what it can of it.

    The signatures keep their names, inputs and outputs, and what is to be compiled is marked in the file, so that any
    TensorFlow compiles it at the first call of each input shape. That takes seconds: TensorFlow Serving does it
    before it serves, from the warm-up requests in ``assets.extra``, one for each batch size. Compile time, load time
    and the time of later calls are measured in a fresh process, beside the parent's; see ``report`` in the model card.

    XLA makes some models faster and others several times slower, on CPUs above all: hold the result against its parent
    with `benchmark`. The result is frozen: it has no variables.

    What XLA compiled for each batch size can be packed with the model. TensorFlow reads it in place of compiling where
    the process is told so before it starts, by the value of ``TF_XLA_FLAGS`` that the card gives (TensorFlow reads no
    path with a space in it there), and where the TensorFlow and the kind of processor are those of this run: on another
    processor it may crash.

    Args:
        model: A SavedModel or a Keras model.
        compiled: The same model, compiled when it is called.
        examples: Real inputs for the comparison and the warm-up, found by input name; random ones without them.
        mode: ``whole`` makes one program of each signature (`jit_compile`), and is refused where XLA lacks an
            operation. ``clusters`` leaves to TensorFlow which groups of operations to compile (auto-clustering) and
            runs the others as before: for models with text or tables.
        batch_sizes: What will be asked for: each gets a warm-up request, and with `static` a signature.
        static: Whether to add a signature of a fixed batch size for each, ``serving_default_batch_32``.
        warm_up: Whether to write warm-up requests. They need tensorflow_serving.apis; the card says when it is missing.
        cache: Whether to pack what XLA compiled, in ``assets.extra/xla_cache``.
        tolerance: Refuse the result when an output differs by more than this fraction of its range.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When an operation of a whole signature cannot be compiled (all are named, with the reason),
            XLA compiled no group at all, the model cannot be frozen or run, or the result answers otherwise.
    """
    for size in batch_sizes:
        if not size.isdigit() or not int(size):
            raise ComponentError(f"batch_sizes: {size!r}", "whole numbers above zero", "pass batch_sizes 1 32")
    if static and mode == "clusters":
        raise ComponentError(
            "static=True with mode='clusters'",
            "signatures of a fixed size only where each is one program",
            "pass mode='whole', or static=False: what is compiled for a batch size is kept for it in either mode",
        )
    from tfopt.components.compile_xla.compile import compile_model
    from tfopt.components.compile_xla.wish import Wish

    sizes = sorted({int(size) for size in batch_sizes})
    wish = Wish(whole=mode == "whole", sizes=sizes, static=static, warm_up=warm_up, cache=cache, tolerance=tolerance)
    compiled.metadata |= compile_model(model, compiled.path, examples, wish)
