"""Generate component pages and their index, pictures, compiled Kubeflow YAML, and docs/verified.md.

    python docs/generate.py [FOLDER]

Files are written below FOLDER (by default this repository). A test compares them with the committed ones.
"""

import json
import re
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from diagram import draw_dag, draw_flowchart

import tfopt
from tfopt.cli.commands import pipeline_schema
from tfopt.component import Component, Port, components
from tfopt.dag.tracing import load, pipelines
from tfopt.declaration.component import PURPOSES
from tfopt.declaration.parameters import Parameter
from tfopt.kfp import compiler as kfp

ROOT = Path(__file__).parent.parent
VERIFIED = datetime(2026, 11, 24, tzinfo=UTC)  # set at each release; the catalogue removes entries after a year


def main(root: Path) -> None:
    """Write every generated file."""
    for name, component in components().items():
        _write(root / "components" / name / "README.md", page(component))
        compiled = root / "deploy" / "kfp" / "components" / name / "component.yaml"
        _write(compiled.with_name("metadata.yaml"), catalogue_entry(component))
        kfp.compile_component(component, compiled)
    for name in pipelines():
        compiled = root / "deploy" / "kfp" / "pipelines" / f"{name}.yaml"
        compiled.parent.mkdir(parents=True, exist_ok=True)
        kfp.compile_pipeline(load(name), compiled)
    _write(root / "docs" / "mnist" / "retrain.schema.json", json.dumps(pipeline_schema("retrain"), indent=1))
    dag = load("retrain").with_sources({"plan": "", "start": ""})  # as runs without a recording
    del dag.sources["recording"]
    _write(root / "docs" / "retrain.svg", draw_dag(dag))
    _write(root / "docs" / "architecture.svg", draw_flowchart((ROOT / "docs" / "architecture.mmd").read_text()))
    _write(root / "components" / "README.md", index())
    _write(root / "docs" / "verified.md", verified(tomllib.loads((ROOT / "docs" / "verified.toml").read_text())))


def index() -> str:
    """Return the page that lists the components, grouped by their purpose."""
    lines = ["# Components", "", "`tfopt describe NAME --json` prints a component's JSON schema.", ""]
    for purpose, title in PURPOSES.items():
        names = [name for name, component in components().items() if component.purpose == purpose]
        rows = [f"| [`{name}`]({name}/README.md) | {components()[name].summary} |" for name in names]
        lines += [f"## {title[0].upper()}{title[1:]}", "", "| component | what it does |", "|---|---|", *rows, ""]
    lines += ["This page is written from the components by `make docs`."]
    return "\n".join(lines) + "\n"


def page(component: Component) -> str:
    """Return the page of one component."""
    lines = [f"# {component.name}", "", component.summary, ""]
    if component.explanation:
        lines += [component.explanation, ""]
    for title, ports in (("Inputs", component.inputs), ("Outputs", component.outputs)):
        rows = [f"| `{port.name}` | {_kind(port)} | {port.description} |" for port in ports.values()]
        lines += [f"## {title}", "", "| name | type | what |", "|---|---|---|", *rows, ""]
    rows = [_row(parameter) for parameter in component.parameters.values()]
    if rows:
        lines += ["## Parameters", "", "| name | values | default | what |", "|---|---|---|---|", *rows, ""]
    wires = " ".join(f"--{name.replace('_', '-')} PATH" for name in [*component.inputs, *component.outputs])
    lines += ["## Use", "", "```console", f"tfopt {component.name} {wires}", "```", ""]
    lines += ["This page is written from the signature and docstring in `component.py` by `make docs`."]
    return "\n".join(lines) + "\n"


def verified(content: dict[str, Any]) -> str:
    """Return docs/verified.md: a table of claims for each area, and what was not run."""
    lines = [
        "# What was verified",
        "",
        "Each row has the command that checks the claim, its result, the machine and date, and what was not run.",
        "Debian 12 (glibc 2.36), Python 3.11.7, packages as in `requirements/lock.txt`, no GPU.",
        "Generated from `verified.toml`; detailed tables are in [benchmarks.md](benchmarks.md).",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in content["machines"].items()),
    ]
    for area in dict.fromkeys(check["area"] for check in content["check"]):
        lines += [
            "",
            f"## {area}",
            "",
            "| claim | command | result | machine, date | not run |",
            "|---|---|---|---|---|",
        ]
        for check in content["check"]:
            if check["area"] == area:
                when = f"{check['machine']}, {check['date']:%Y-%m-%d}"
                cells = [check["claim"], f"`{check['command']}`", check["result"], when, check.get("not_run", "")]
                lines.append(f"| {' | '.join(cells)} |")
    networks = content["networks"]
    when = f"{networks['machine']}, {networks['date']:%Y-%m-%d}"
    lines += ["", "## Networks of other tools", "", f"`{networks['command']}`, on {when}. {networks['text'].strip()}"]
    lines += ["", networks["table"].strip()]
    lines += ["", "## Not run", "", "| not run | instead |", "|---|---|"]
    lines += [f"| {row['what']} | {row['instead']} |" for row in content["not_run"]]
    return "\n".join(lines) + "\n"


def catalogue_entry(component: Component) -> str:
    """Return the ``metadata.yaml`` that kubeflow/pipelines-components expects next to a component."""
    oldest = re.findall(r'"kfp>=([\d.]+)', (ROOT / "pyproject.toml").read_text())[0]
    facts = {
        "name": component.name,
        "stability": "alpha" if tfopt.__version__.startswith("0.") else "stable",
        "dependencies": {"kubeflow": [{"name": "Pipelines", "version": f">={oldest}"}]},
        "tags": ["tensorflow", component.image],
        "lastVerified": VERIFIED,
    }
    return yaml.safe_dump(facts, sort_keys=False, width=120)


def _kind(port: Port) -> str:
    return f"{'list of ' if port.many else ''}{port.type.__name__}{', optional' if port.optional else ''}"


def _row(parameter: Parameter) -> str:
    default = "required" if parameter.required else f"`{parameter.default}`"
    return f"| `{parameter.name}` | {parameter.expected} | {default} | {parameter.description} |"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
