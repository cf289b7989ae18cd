"""The subcommand ``tfopt init``: write a folder from which `retrain` runs on a table of the user."""

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import shlex
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import jinja2

import tfopt
from tfopt.cli.arguments import Subparsers, add_command
from tfopt.components.prepare_examples.table_columns import TableColumns, inspect_table
from tfopt.errors import ComponentError
from tfopt.formatting import indented
from tfopt.measurement.confidence_bounds import smallest_visible_loss
from tfopt.storage.remote_files import is_remote
from tfopt.value_types import JsonObject

TEMPLATES = Path(__file__).parent / "starting_folder"
SCHEMA = "retrain.schema.json"
CANDIDATES = 8  # of `retrain`
MARGIN = 1.5  # of the goal over the smallest loss that the records can show
EXTRAS = "tf,onnx,openvino"
WHEELS = "wheels"  # in the written folder
WORKFLOW = Path(".github", "workflows", "quality.yml")


def add_init(subparsers: Subparsers, pipeline_schema: Callable[[str], JsonObject]) -> None:
    """Add ``tfopt init``; `pipeline_schema` returns the JSON schema of a pipeline's run files."""
    summary = "write a starting folder for a table of yours: run file, model, DAG, CI workflow, README"
    description = (
        "Look at the columns of a table (CSV, TSV, JSON lines, Parquet), and write a folder with a run file, a Keras "
        "model for these columns, a DAG, a workflow of GitHub Actions that fails a pull request when quality degrades, "
        "and a README. Existing files are not replaced."
    )
    parser = add_command(subparsers, "init", lambda arguments: _init(arguments, pipeline_schema), summary, description)
    parser.add_argument("folder", type=Path, help="the folder to write, such as my_model")
    parser.add_argument("--data", required=True, metavar="PATH", help="the table: a file, or a folder of files")
    parser.add_argument("--label", required=True, metavar="COLUMN", help="the column to predict")


def _init(arguments: argparse.Namespace, pipeline_schema: Callable[[str], JsonObject]) -> int:
    folder: Path = arguments.folder
    files = {path.stem: path for path in sorted(TEMPLATES.glob("*.j2"))}
    files[str(WORKFLOW)] = files.pop(WORKFLOW.name)
    for name in (*files, SCHEMA):
        if (folder / name).exists():
            raise ComponentError(f"{folder / name} exists", "a folder without it", "name another folder, or remove it")
    columns = inspect_table(arguments.data, arguments.label)
    vector = "row"
    while vector in {*columns.numbers, *columns.words, *columns.dates}:
        vector += "_"
    requirement = installed_from()
    folder.mkdir(parents=True, exist_ok=True)
    data = arguments.data if is_remote(arguments.data) else os.path.relpath(arguments.data, folder)
    facts = {
        **asdict(columns),
        "data": data,
        "missing": {
            name: f"{number.missing:.0f}" for name, number in columns.numbers.items() if number.missing is not None
        },
        "vector": vector,
        "requirement": requirement,
        "extras": EXTRAS,
        "wheels": WHEELS,
        "allowed_loss": _allowed_loss(columns),
        "working_directory": (place := _place_in_repository(folder)),
        "prefix": "" if place == "." else f"{place}/",
    }
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # Python, YAML and Markdown
    environment.filters["quoted"] = json.dumps  # a text of JSON is one of Python and of YAML, too
    environment.filters["cell"] = lambda text: "`" + text.replace("|", "\\|").replace("`", "'") + "`"
    for name, template in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(environment.from_string(template.read_text()).render(facts) + "\n")
    (folder / SCHEMA).write_text(json.dumps(pipeline_schema("retrain"), indent=1) + "\n")
    kind = f"{columns.classes} classes" if columns.classes else "a number"
    if columns.target and columns.target.logarithm:
        kind = "a skewed number, predicted as its logarithm"
    dates = f", {len(columns.dates)} of dates" if columns.dates else ""
    counts = f"{len(columns.numbers)} columns of numbers, {len(columns.words)} of words{dates}"
    print(indented(f"{columns.label}: {kind}; {counts}"))
    for feature, name in columns.renamed.items():
        print(indented(f"{name}: renamed to {feature}, as inputs of models have no such characters"))
    for name, reason in columns.left_out.items():
        print(indented(f"{name}: left out: {reason}"))
    if not requirement:
        print(indented(f"{WORKFLOW}: needs the wheel of tfopt in {WHEELS}/: see README.md"))
    print(indented(f"next: tfopt run -f {shlex.quote(str(folder / 'retrain.yaml'))}"))
    return 0


def _allowed_loss(columns: TableColumns) -> int:
    """Return the loss of quality, in percent, that a candidate may have: 1, or what a small table can show.

    The template takes three tenths of a small table for the measurement. Half as much again as what these records can
    show without any difference leaves room for a few.
    """
    if not columns.all_rows or MARGIN * smallest_visible_loss(columns.rows // 10, CANDIDATES) <= 0.01:
        return 1
    return math.ceil(100 * MARGIN * smallest_visible_loss(3 * columns.rows // 10, CANDIDATES))


def installed_from() -> str | None:
    """Return the requirement, for pip, from which another machine installs this version of tfopt; None without one.

    pip records the address of what it installed (PEP 610). A clone on this machine is taken for its origin.
    """
    record = importlib.metadata.distribution("tfopt").read_text("direct_url.json")
    if record is None:
        return f"tfopt[{EXTRAS}]=={tfopt.__version__}"
    facts = json.loads(record)
    url, commit = facts["url"], facts.get("vcs_info", {}).get("commit_id")
    if url.startswith("file:"):
        clone = urllib.request.url2pathname(urllib.parse.urlparse(url).path)
        url, commit = _git(clone, "remote", "get-url", "origin"), _git(clone, "rev-parse", "HEAD")
        if not url.startswith("https:") or not _git(clone, "branch", "--remotes", "--contains", commit):
            return None
    return f"tfopt[{EXTRAS}] @ " + (f"git+{url}@{commit}" if commit else url)


def _git(clone: str, *words: str) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=False).stdout.strip()
    return ""


def _place_in_repository(folder: Path) -> str:
    """Return the path of a folder from the root of its Git repository; the folder is the root if there is none."""
    path = folder.absolute()
    root = next((parent for parent in (path, *path.parents) if (parent / ".git").exists()), path)
    return path.relative_to(root).as_posix()
