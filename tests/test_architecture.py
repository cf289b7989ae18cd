"""The walls of the house: which way imports point, how long files are, what the folders hold."""

import ast
import subprocess
from pathlib import Path

import pytest

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


def imports(file: Path, *, top: bool = False) -> set[str]:
    """The modules a file imports, everywhere or only when it is itself imported."""
    tree = ast.parse(file.read_text())
    nodes = tree.body if top else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_components_do_not_import_each_other(folder: Path):
    for file in folder.rglob("*.py"):
        others = {name for name in imports(file) if name.startswith("tfopt.components.")}
        assert all(name.startswith(f"tfopt.components.{folder.name}") for name in others), file


def test_the_library_imports_no_component():
    for file in [*ROOT.glob("tfopt/*.py"), *ROOT.glob("tfopt/runtimes/*.py"), *ROOT.glob("tfopt/training/*.py")]:
        assert not {name for name in imports(file) if name.startswith("tfopt.components.")}, file


def test_pipelines_import_only_declarations_and_each_other():
    allowed = ("tfopt.artifacts", "tfopt.component", "tfopt.kept.Destination", "tfopt.trace", "tfopt.pipelines")
    for file in ROOT.glob("pipelines/*.py"):
        assert all(name in ("tfopt", "tfopt.kept") or name.startswith(allowed) for name in imports(file)), file


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_doors_import_no_framework(folder: Path):
    heavy = ("tensorflow", "keras", "tf_keras", "apache_beam", "tfx", "kfp", "numpy", "ai_edge_litert")
    assert not {name for name in imports(folder / "component.py", top=True) if name.split(".")[0] in heavy}


def test_files_stay_readable_in_one_sitting():
    long = {
        str(file.relative_to(ROOT)): lines
        for file in SOURCES
        if (lines := len(file.read_text().splitlines()))
        > (180 if file.parent in COMPONENTS and file.name == "component.py" else 250)
    }
    assert not long


def test_every_component_has_a_test_file():
    for folder in COMPONENTS:
        assert (ROOT / "tests" / "components" / f"test_{folder.name}.py").is_file()


def test_the_lock_names_no_registry():
    assert "://" not in (ROOT / "requirements" / "lock.txt").read_text()


def test_links_are_links_in_git():
    listed = subprocess.run(
        ["git", "ls-files", "-s", "tfopt/components", "tfopt/pipelines"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["120000", "120000"]
