"""The commands that are killed: every component, and a DAG on the local engines."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.inputs import (
    build_dag,
    component_arguments,
    component_inputs,
    output_paths,
    run_dag,
    write_sources,
)
from tfopt.component import components

DAG = Path(__file__).with_name("kill_dag.py")
ENGINES = ("process", "beam", "local")
QUICK = ("inspect_model", "fold_batch_norm", "prepare_examples", "select_model", "push_model")


@dataclass(frozen=True)
class Case:
    """A command that is killed and run again.

    Attributes:
        name: The component, or the engine of the DAG.
        words: The command line; ``{case}`` is the case's folder.
        outputs: Names of the outputs below the case's folder; none for a DAG.
    """

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...] = ()

    @property
    def is_run(self) -> bool:
        """True for a DAG."""
        return self.words[0] == "run"


def write_inputs(folder: Path, *, every: bool) -> None:
    """Write the inputs of all components, or of the quick ones, into a folder with ``inputs.json``."""
    from tests.reports import DIGITS, make_models, write_reports
    from tfopt.component import find

    paths = write_sources(folder)
    if every:
        dag = build_dag(list(components()), paths, folder / "served")
        paths |= output_paths(run_dag(dag, paths, folder / "root"))
    else:
        models = make_models(DIGITS[:3], folder / "rows")
        evaluation, benchmark = write_reports(DIGITS[:3], models, folder)
        paths |= {"train.trained": paths["start"], "baseline": models[0], "candidates": models[1:]}
        paths |= {"evaluation": evaluation, "benchmark": benchmark}
        chosen = {name: folder / name for name in ("selected", "decision", "blessing")}
        find("select_model")(**{name: paths[name] for name in find("select_model").inputs}, **chosen)
        paths |= chosen
    listed = {
        name: list(map(os.fspath, path)) if isinstance(path, list) else os.fspath(path) for name, path in paths.items()
    }
    (folder / "inputs.json").write_text(json.dumps(listed))


def make_cases(folder: Path, *, every: bool) -> list[Case]:
    """Return the cases for inputs in a folder."""
    paths = json.loads((folder / "inputs.json").read_text())
    names = list(components()) if every else QUICK
    cases = [_case(name, component_inputs(name, paths) if every else _quick_inputs(name, paths)) for name in names]
    sources = {"data": paths["data"], "model": paths["start"], "blessing": _blessing(folder)}
    values = [word for name, path in sources.items() for word in ("--set", f"{name}={path}")]
    for engine in ENGINES:
        words = ("run", str(DAG), "--root", "{case}/root", "--engine", engine, "--json", *values)
        cases.append(Case(engine, (*words, "--set", "destination={case}/served")))
    return cases


def _quick_inputs(name: str, paths: dict[str, Any]) -> dict[str, Any]:
    if name == "push_model":
        return {"model": paths["selected"], "blessing": paths["blessing"], "decision": paths["decision"]}
    inputs = {"model": paths["start"], "data": paths["data"]} | paths
    optional = ("previous", "plan", "anomalies", "examples")
    return {key: inputs[key] for key in components()[name].inputs if key in inputs and key not in optional}


def _case(name: str, inputs: dict[str, Any]) -> Case:
    component = components()[name]
    outputs = {output: f"{{case}}/{output}" for output in component.outputs}
    words = [name]
    for option, value in {**inputs, **outputs, **component_arguments(name, Path("{case}/served"))}.items():
        flag = option.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return Case(name, tuple(words), tuple(outputs))


def _blessing(folder: Path) -> Path:
    from tfopt.artifacts import Blessing
    from tfopt.reports.decision_report import BlessingReport

    path = folder / "any_blessing"
    Blessing(path).write(BlessingReport(True, "for a test", None))
    return path


if __name__ == "__main__":
    write_inputs(Path(sys.argv[1]), every=sys.argv[2] == "every")
