"""Test the architecture: direction of imports, no cycles, reasons of imports in functions, contents of folders."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import tfopt
from tfopt.component import find

ROOT = Path(__file__).parent.parent
COMPONENTS = sorted(path.parent for path in ROOT.glob("components/*/component.py"))
SOURCES = sorted(
    [
        *ROOT.glob("components/**/*.py"),
        *ROOT.glob("pipelines/*.py"),
        *(
            file
            for file in ROOT.glob("tfopt/**/*.py")
            if not {"components", "pipelines"} & set(file.relative_to(ROOT).parts)
        ),
    ]
)


@functools.cache
def import_statements(file: Path) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the imports of a file: all, and those at module level."""
    tree = ast.parse(file.read_text())
    kinds = ast.Import | ast.ImportFrom
    return [node for node in ast.walk(tree) if isinstance(node, kinds)], [n for n in tree.body if isinstance(n, kinds)]


def imports(file: Path, *, top: bool = False) -> set[str]:
    """Return the modules that a file imports, anywhere or (``top``) at module level only."""
    names = set()
    for node in import_statements(file)[top]:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_components_do_not_import_each_other(folder: Path):
    for file in folder.rglob("*.py"):
        others = {name for name in imports(file) if name.startswith("tfopt.components.")}
        assert all(name.startswith(f"tfopt.components.{folder.name}") for name in others), file


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_components_declare_the_components_that_they_run(folder: Path):
    calls = [node for file in folder.rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]
    names = {
        argument.value
        for node in calls
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("find", "run_component")
        for argument in node.args[:1]
        if isinstance(argument, ast.Constant)
    }
    assert names <= set(find(folder.name).runs)


# A package imports packages of later lines only. docs/architecture.md has the same table.
LAYERS = (
    ("optimization",),
    ("cli",),
    ("fleet", "notifications"),
    ("run_records",),
    ("tfx", "process_engine", "kfp"),
    ("telemetry",),
    ("dag",),
    ("component",),
    ("execution",),
    ("training", "conversion", "serving"),
    ("graph_checks",),
    ("saved_models",),
    ("graph",),
    ("measurement",),
    ("runtimes",),
    ("keras_models", "data", "tensorrt", "model_store"),
    ("declaration",),
    ("graph_def",),
    ("artifacts", "charts"),
    ("reports",),
    ("processes", "formatting", "storage"),
    ("error_messages",),
    ("errors", "metric_table", "value_types"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ALIASES = {"run", "trace"}  # public names of older releases, which nothing in the library imports


def library_edges() -> set[tuple[str, str]]:
    """Return each pair of packages or modules of `tfopt` where the first imports the second."""
    edges = set()
    for file in ROOT.glob("tfopt/**/*.py"):
        package = file.relative_to(ROOT / "tfopt").parts[0].removesuffix(".py")
        if package in {"components", "pipelines", "__init__", *ALIASES}:
            continue
        names = {name.split(".")[1] for name in imports(file) if name.startswith("tfopt.")}
        edges |= {(package, name) for name in names if name in RANK | dict.fromkeys(ALIASES) and name != package}
    return edges


def test_every_package_has_a_layer():
    packages = {
        path.stem for path in (ROOT / "tfopt").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert packages - {"__init__", "components", "pipelines", *ALIASES} == set(RANK)


def test_imports_in_the_library_point_down():
    assert len(library_edges()) > 30
    assert not {edge for edge in library_edges() if edge[1] in ALIASES or RANK[edge[0]] >= RANK[edge[1]]}


def dependencies(file: Path, modules: Collection[str]) -> set[str]:
    """Return the modules that a file imports anywhere: in functions and for type checkers too.

    The edges that stay are those by name: a runtime of a format, the implementation of a worker, a public name.
    """
    names = set()
    for node in import_statements(file)[0]:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {member if member in modules else node.module for member in members}
    return names & set(modules)


def test_modules_have_no_import_cycle():
    modules = {module(file): file for file in SOURCES}
    graph = {name: dependencies(file, modules) for name, file in modules.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_dependencies_are_those_of_functions_and_type_checkers_too(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text(
        "import tfopt\nif TYPE_CHECKING:\n    from tfopt.dag.dag import Dag\n"
        "def load():\n    from tfopt.runtimes import Runtime, tflite\n"
    )
    modules = {"tfopt", "tfopt.dag", "tfopt.dag.dag", "tfopt.runtimes", "tfopt.runtimes.tflite"}
    assert dependencies(file, modules) == modules - {"tfopt.dag"}


def unexplained_imports(source: str) -> list[int]:
    """Return the lines of imports of tfopt in a function that have no comment, nor has the first of the function."""
    lines, unexplained = source.splitlines(), []
    if not re.search(r"^[ \t].*\b(from|import)\b.*\btfopt\b", source, re.MULTILINE):  # parsing takes most of the time
        return unexplained
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            numbers = [node.lineno for node in own_nodes(function) if imports_library(node)]
            if numbers and "  # " not in lines[min(numbers) - 1]:
                unexplained += [number for number in numbers if "  # " not in lines[number - 1]]
    return unexplained


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


def imports_library(node: ast.AST) -> bool:
    """Return whether a node is an import of a module of tfopt."""
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(f"{name}.".startswith("tfopt.") for name in names)


def test_imports_in_functions_have_a_comment_with_the_reason():
    assert [f"{file}:{line}" for file in SOURCES for line in unexplained_imports(file.read_text())] == []


def test_a_reason_is_missing_without_a_comment_at_the_import_or_the_first_of_its_function():
    first, second, other = "import tfopt.kfp", "from tfopt import runtimes", "import numpy"
    function = "def function():\n    {}\n    {}\n"
    assert unexplained_imports(function.format(first, second)) == [2, 3]
    assert unexplained_imports(function.format(f"{first}  # imports KFP", second)) == []
    assert unexplained_imports(function.format(first, f"{second}  # imports NumPy")) == [2]
    assert unexplained_imports(function.format(other, second)) == [3]


def test_the_stub_types_the_public_names():
    stub = ast.parse((ROOT / "tfopt" / "__init__.pyi").read_text())
    typed = {
        alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == tfopt.PUBLIC


def module(file: Path) -> str:
    """Return the dotted name by which a source file is imported."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "tfopt" else ("tfopt", *parts)).removesuffix(".__init__")


def test_the_library_imports_no_component():
    library, cli = ROOT / "tfopt" / "declaration" / "library.py", ROOT / "tfopt" / "cli"
    shared = {  # commands that do what a component does
        cli / "init.py": "tfopt.components.prepare_examples.table_columns",
        cli / "destinations" / "history.py": "tfopt.components.push_model.",
    }
    for file in SOURCES:
        if file.is_relative_to(ROOT / "tfopt") and file != library:
            names = {name for name in imports(file) if name.startswith("tfopt.components")}
            assert {name for name in names if not name.startswith(shared.get(file, "none"))} == set(), file


@pytest.mark.parametrize(
    "statement", ["import tfopt.component", "from tfopt import Steps, component", "import tfopt.kfp.container_entry"]
)
def test_declaring_imports_nothing_heavy(statement: str):
    heavy = ("tensorflow", "keras", "tf_keras", "apache_beam", "tfx", "kfp", "ai_edge_litert", "onnx", "openvino")
    code = f"{statement}; import sys; print([name for name in {heavy} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_pipelines_import_only_declarations_and_each_other():
    allowed = {
        "collections.abc",
        "dataclasses",
        "tfopt.artifacts",
        "tfopt.component",
        "tfopt.model_store.warm_start",
        "tfopt.trace",
        "typing",
    }
    for file in ROOT.glob("pipelines/*.py"):
        modules = {name for name in imports(file) if name in allowed or name.startswith("tfopt.pipelines")}
        members = {name for name in imports(file) if name.rpartition(".")[0] in modules}
        assert imports(file) == modules | members, file


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_declarations_import_no_framework(folder: Path):
    heavy = ("tensorflow", "keras", "tf_keras", "apache_beam", "tfx", "kfp", "numpy", "ai_edge_litert")
    assert not {name for name in imports(folder / "component.py", top=True) if name.split(".")[0] in heavy}


def test_every_component_has_a_test_file():
    for folder in COMPONENTS:
        assert (ROOT / "tests" / "components" / f"test_{folder.name}.py").is_file()


def test_the_lock_file_has_no_registry_url():
    assert "://" not in (ROOT / "requirements" / "lock.txt").read_text()


def test_symbolic_links_are_stored_as_links_in_git():
    listed = subprocess.run(
        ["git", "ls-files", "-s", "tfopt/components", "tfopt/pipelines"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["120000", "120000"]
