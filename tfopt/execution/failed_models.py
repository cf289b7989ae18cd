"""Failed models: artifacts that record why a step could not make a model.

With ``on_failure="row"`` a step that cannot make its model succeeds with such an artifact, which reports list. See
docs/adr/0012-failed-models.md.
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from tfopt.artifacts import FAILURE, Artifact, Model
from tfopt.declaration.component import ON_FAILURE
from tfopt.error_messages import first_line, machine_error
from tfopt.errors import AttemptError, ComponentError, ExamplesError
from tfopt.value_types import JsonObject


@contextlib.contextmanager
def as_row(outputs: Mapping[str, Artifact], parameters: Mapping[str, Any], origin: Mapping[str, Any]) -> Iterator[None]:
    """Write an exception of the block to the single output instead of raising it, if ``on_failure`` is ``row``.

    Errors that are due to the machine (disk space, memory, a missing package) or to the examples do not describe the
    model: they are always raised. The origin is written next to the error, so that different failures have different
    digests.
    """
    if parameters.get(ON_FAILURE.name) != "row":
        yield
        return
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if machine_error(error) or isinstance(error, ExamplesError):
            raise
        (output,) = outputs.values()
        shutil.rmtree(output.path)  # it may be half-written
        output.path.mkdir()
        received = f"{type(error).__name__}: {first_line(error)}"
        fix = "see the step's log; report this with the model"
        unforeseen = ComponentError(received, "a model that can be made", fix)
        parts = error if isinstance(error, ComponentError) else unforeseen
        message: JsonObject = {"received": parts.received, "expected": parts.expected, "how_to_fix": parts.fix}
        message["is_lasting"] = parts is error and not isinstance(error, AttemptError)
        (output.path / FAILURE).write_text(json.dumps(message | dict(origin), indent=1, ensure_ascii=False) + "\n")
        failure = Model(output.path).failure
        logging.getLogger(__name__).warning("not made: %s", failure)
        output.metadata |= {"failed": 1, "reason": failure}


def refuse_failed(inputs: Mapping[str, Any]) -> None:
    """Raise ComponentError if a single-model input is a failed model; lists of models may contain failed ones."""
    for name, model in inputs.items():
        if isinstance(model, Model) and model.failure:
            received = f"{name}: {model.name} was not made: {model.failure}"
            raise ComponentError(received, "a model", f"fix the step that makes it; {model.uri} has the whole error")
