"""A compiled pipeline run by KFP's own local engine, each step in a container of its own."""

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kfp.local
import yaml
from docker.types import Mount
from kfp import components

from tfopt.artifacts import Artifact
from tfopt.dag.dag import Dag


def run(pipeline: Path, values: Mapping[str, Any], root: Path, *, shared: Mapping[Path, bool]) -> str:
    """Run it to its end and return what the engine and the containers said.

    Args:
        pipeline: The compiled YAML.
        values: Its parameters.
        root: Where its artifacts appear; any user may write there, since the steps' user owns nothing.
        shared: Other folders that the containers see, at the same path, and whether they may write to them.

    Raises:
        RuntimeError: When a step fails. What was said is its second argument.
    """
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    mounts = [Mount(str(folder), str(folder), "bind", read_only=not may_write) for folder, may_write in shared.items()]
    locked = {"read_only": True, "tmpfs": {"/tmp": ""}, "user": "10001", "network_mode": "none", "cap_drop": ["ALL"]}
    kfp.local.init(kfp.local.DockerRunner(mounts=mounts, **locked), pipeline_root=str(root))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            components.load_component_from_file(str(pipeline))(**values)
        except RuntimeError as error:
            raise RuntimeError(str(error), said.getvalue()) from error
    return said.getvalue()


def outputs(dag: Dag, pipeline: Path, root: Path) -> dict[str, dict[str, Artifact]]:
    """What each step left, by step and output, with the metadata it told the engine."""
    spec = next(yaml.safe_load_all(pipeline.read_text()))
    folder = next(root.iterdir())
    found: dict[str, dict[str, Artifact]] = {}
    for task in spec["root"]["dag"]["tasks"].values():
        if (step := dag.steps.get(task["taskInfo"]["name"])) is None:
            continue  # an importer
        place = folder / task["componentRef"]["name"].removeprefix("comp-")
        told = json.loads((place / "executor_output.json").read_text())["artifacts"]
        found[step.id] = {
            name: port.type(str(place / name), told[name]["artifacts"][0]["metadata"])
            for name, port in step.component.outputs.items()
        }
    return found
