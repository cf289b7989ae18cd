"""The functions that ``kfp.dsl.executor_main`` runs for `Steps(local=True)`: each component of the installed package.

KFP's `SubprocessRunner` runs only lightweight components: a Python file and the name of a function in it. This file has
a function for each name of a component.
"""

import argparse
import inspect
import json
from typing import Any

from kfp import dsl

from tfopt.component import find
from tfopt.kfp.container_components import set_signature
from tfopt.kfp.container_entry import parse_message, run_step
from tfopt.processes.isolation import step_process


def __getattr__(name: str) -> Any:
    """Return the function of a component: NAME, or MODULE:NAME."""
    if name.startswith("__"):
        raise AttributeError(name)
    component = find(name)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--executor_input", required=True)
    parser.add_argument("--same-artifact", action="append", default=[])
    arguments, _ = parser.parse_known_args()

    def run(**artifacts: Any) -> None:
        same = dict(pair.split("=", 1) for pair in arguments.same_artifact)
        with step_process():
            written = run_step(component, arguments.executor_input, same)
        for key, metadata in written.items():
            artifacts[key].metadata |= metadata  # KFP writes it

    parse_message(arguments.executor_input, component)  # raises for any other text
    message = json.loads(arguments.executor_input)
    inputs, outputs = ((message.get(side) or {}).get("artifacts") or {} for side in ("inputs", "outputs"))
    # KFP wants an annotation for each artifact of the message, which has parameters as well.
    hints = {**dict.fromkeys(inputs, dsl.Input[dsl.Artifact]), **dict.fromkeys(outputs, dsl.Output[dsl.Artifact])}
    parameters = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=hints[key]) for key in hints]
    set_signature(run, name, "", inspect.Signature(parameters))
    return run
