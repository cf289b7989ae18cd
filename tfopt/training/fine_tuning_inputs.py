"""Input checks of components that fine-tune, made before anything heavy is imported."""

from tfopt.artifacts import Examples, PythonModule
from tfopt.errors import ComponentError
from tfopt.training.user_module import check_syntax


def check_fine_tuning_inputs(
    examples: Examples | None, module: PythonModule | None, *, verb: str, recover: int = 0
) -> None:
    """Raise ComponentError if there is a module without examples or with a syntax error, or ``recover`` without it.

    Args:
        examples: Must have the splits ``train`` and ``eval``.
        module: None to skip fine-tuning.
        verb: The component's verb, for the error: what it can do without fine-tuning.
        recover: Epochs of a second round, which needs a first one.
    """
    if module is None:
        if recover:
            raise ComponentError(
                f"recover={recover} without a module",
                "a module to fine-tune with",
                "pass module=PATH and examples=PATH",
            )
        return
    if examples is None:
        raise ComponentError(
            "a module without examples",
            "examples to fine-tune on, with the splits train and eval",
            f"pass examples=PATH, or leave the module out to {verb} without fine-tuning",
        )
    for split in ("train", "eval"):
        examples.split(split)
    check_syntax(module.path)
