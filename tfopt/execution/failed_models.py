"""A model that could not be made, as a result: an artifact that says why, which those who compare models list.

A DAG is fixed before it runs. So that one candidate that cannot be made does not end the run of all, its step succeeds
with such an artifact when it was asked to (``on_failure="row"``); see docs/adr/0012-failures-are-rows.md.
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tfopt.artifacts import FAILURE, Artifact, Model
from tfopt.errors import ComponentError, first_line, lacking

OnFailure = Literal["raise", "row"]  # how a component that makes a model declares its parameter of that name
PARAMETER = "on_failure"


@contextlib.contextmanager
def as_row(outputs: Mapping[str, Artifact], parameters: Mapping[str, Any], origin: Mapping[str, Any]) -> Iterator[None]:
    """Let what fails in here become the content of the one output, where ``on_failure`` says so.

    What the machine lacks (room on a disk, memory, a package) says nothing about the model, and is raised as ever.

    Args:
        outputs: The staged outputs.
        parameters: The component's, checked.
        origin: What goes into the file besides the error, so that no two failures have the same digest.
    """
    if parameters.get(PARAMETER) != "row":
        yield
        return
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if lacking(error):
            raise
        (output,) = outputs.values()
        shutil.rmtree(output.path)  # whatever was written of it
        output.path.mkdir()
        parts = error if isinstance(error, ComponentError) else _unforeseen(error)
        said = {"received": parts.received, "expected": parts.expected, "how_to_fix": parts.fix}
        (output.path / FAILURE).write_text(json.dumps(said | dict(origin), indent=1, ensure_ascii=False) + "\n")
        failure = Model(output.path).failure
        logging.getLogger("tfopt").warning("not made: %s", failure)
        output.metadata |= {"failed": 1, "reason": failure}


def refuse_failed(inputs: Mapping[str, Any]) -> None:
    """Raise ComponentError when a single model is one that was not made; lists of models are there to be compared."""
    for name, given in inputs.items():
        if isinstance(given, Model) and given.failure:
            raise ComponentError(
                f"{name}: {given.name} was not made: {given.failure}",
                "a model",
                f"mend the step that was to make it; {given.uri} says all of it",
            )


def _unforeseen(error: Exception) -> ComponentError:
    said = f"{type(error).__name__}: {first_line(error)}"
    return ComponentError(said, "a model that can be made", "see the step's log; report this with the model")
