"""Test the pages in docs/: paths, modules and links exist; docs/architecture.md has all packages and 25 tasks."""

import re
from pathlib import Path

import pytest

from tests.test_architecture import LAYERS

ROOT = Path(__file__).parents[2]
PAGES = {
    str(file.relative_to(ROOT)): file.read_text()
    for file in (
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("docs/*.mmd"),
        ROOT / "components" / "README.md",
        *(ROOT / f"{name}.md" for name in ("CODE_OF_CONDUCT", "CONTRIBUTING", "README", "SECURITY")),
    )
}
PAGE = PAGES["docs/architecture.md"]
SOURCES = "".join(file.read_text() for folder in ("components", "tfopt") for file in ROOT.glob(f"{folder}/**/*.py"))
GROUPS = set(re.findall(r'Extensions\(\s*"(tfopt\.\w+)"', SOURCES))  # of entry points
PATH = re.compile(
    r"(?<![\w/.])(?!deploy/model-server)(?:components|deploy|docs|pipelines|requirements|tests|tfopt|tools)/[\w./-]*\w"
)


def section(title: str) -> list[list[str]]:
    """Return the cells of the rows of the table below a heading."""
    text = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.mark.parametrize("name", PAGES)
def test_every_path_exists(name: str):
    paths = {path for path in PATH.findall(PAGES[name]) if not re.search("NAME|VERB|KIND|FORMAT", path)}
    assert not [path for path in sorted(paths) if not (ROOT / path).exists()]
    assert name != "docs/architecture.md" or len(paths) > 60


@pytest.mark.parametrize("name", PAGES)
def test_every_module_exists(name: str):
    for dotted in re.findall(r"(?<![\w./-])tfopt(?:\.[a-z_]\w*)+", PAGES[name]):
        path, parent = ROOT.joinpath(*dotted.split(".")), ROOT.joinpath(*dotted.split(".")[:-1])
        sources = [file for file in (parent.with_suffix(".py"), parent / "__init__.py") if file.is_file()]
        is_module = path.is_dir() or path.with_suffix(".py").is_file()
        assert (
            is_module or dotted in GROUPS or any(re.search(rf"\b{path.name}\b", file.read_text()) for file in sources)
        ), dotted


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file(name: str):
    for target in re.findall(r"\]\(([^)#]+)\)", PAGES[name]):
        assert target.startswith("http") or (ROOT / name).parent.joinpath(target).exists(), target


def test_the_packages_are_those_of_the_layers_in_their_order():
    rows = [tuple(re.findall(r"`(\w+)`", cells[0])) for cells in section("Packages")]
    assert rows == list(LAYERS)


@pytest.mark.parametrize("task", section("The library in one screen"), ids=lambda cells: cells[0])
def test_each_named_function_is_in_its_file(task: list[str]):
    _, calls, place = task
    sources = "".join((ROOT / file).read_text() for file in re.findall(r"`(tfopt/[\w/]+\.py)`", place))
    names = re.findall(r"`([A-Za-z_]\w*)(?:\([^`]*\))?`", calls)
    assert names or "output." in calls or "model." in calls
    assert not [name for name in names if not re.search(rf"\b{name}\b", sources)]


def test_at_least_25_tasks_have_a_path():
    tasks = section("Where do I change …?")
    assert len(tasks) >= 25
    assert all("`" in cells[1] for cells in tasks)


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    files = sorted(file.name for file in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert re.findall(r"\]\(([^)]+)\)", index) == files
    for file in files:
        title = (ROOT / "docs" / "adr" / file).read_text().splitlines()[0].partition(". ")[2]
        assert f"| {int(file[:4])} | [{title}]({file}) |" in index
