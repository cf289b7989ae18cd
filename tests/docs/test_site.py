"""Test the documentation site: it builds without a broken link, has all pages, and requests nothing from outside."""

import contextlib
import importlib.util
import re
import subprocess
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests import chromium
from tfopt.component import components

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly  # daily: the links between pages, in test_pages.py
REQUESTS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}  # what a browser loads


def load_builder():
    spec = importlib.util.spec_from_file_location("site_builder", ROOT / "tools" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    load_builder().build(folder)
    return folder


class Page(HTMLParser):
    """The addresses in a page: links, what a browser loads, and anchors."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag in REQUESTS and attributes.get("rel") != "canonical" and attributes.get(REQUESTS[tag]):
            self.loaded.append(attributes[REQUESTS[tag]])
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}


def test_every_page_of_the_navigation_and_of_each_component_is_built(site, pages):
    text = (ROOT / "docs" / "zensical.toml").read_text()
    named = re.findall(r'"([\w./]+\.md)"', text)
    assert len(named) > 20
    named += [f"components/{name}/README.md" for name in components()]
    named += [str(file.relative_to(ROOT)) for file in ROOT.glob("docs/**/*.md")]
    built = {file.relative_to(site).as_posix() for file in pages}
    assert not {re.sub(r"README\.md$", "index.html", name).replace(".md", ".html") for name in named} - built
    tomllib.loads(text)


def test_the_navigation_has_every_title(site):
    titles = re.findall(r'\{ "([^"]+)" = "', (ROOT / "docs" / "zensical.toml").read_text())
    shown = {text.strip() for text in re.findall(r">\s*([^<>]+?)\s*<", (site / "index.html").read_text())}
    assert not set(titles) - shown


def test_every_link_within_the_site_leads_to_a_file_and_an_anchor(site, pages):
    checked, broken = 0, []
    for file, page in pages.items():
        for link in [*page.links, *page.loaded]:
            if re.match("[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            checked += 1
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert checked > 1000
    assert not broken


def test_no_page_loads_anything_from_outside(pages):
    outside = {link for page in pages.values() for link in page.loaded if re.match("(https?:)?//", link)}
    assert not outside


def test_a_browser_loads_files_of_the_site_only_and_the_pages_fit(site):
    """Open pages with a wide table, code, the pictures and the reference; the browser has no network."""
    scripts = {
        "width": "page => page.scrollingElement.scrollWidth",
        "pictures": "page => [...page.images].map(image => image.naturalWidth)",
    }
    files = [site / f"{name}.html" for name in ("index", "docs/troubleshooting", "docs/architecture", "docs/python")]
    for file, widths in chromium.measure_pages(files, scripts, [400, 800, 1280]).items():
        for width, page in widths.items():
            assert page["width"] <= width, file
            assert all(page["pictures"]), file
            assert not page["console"], file  # an address that is not reached is an error there


def test_no_page_has_a_diagram_for_which_the_theme_loads_a_script(pages):
    assert not [file for file in pages if 'class="mermaid"' in file.read_text()]


def test_style_sheets_load_nothing_from_outside(site):
    sheets = list(site.rglob("*.css"))
    assert sheets
    assert not [file for file in sheets if re.search(r"(url\(|@import )[\"']?(https?:)?//", file.read_text())]


def test_the_reference_is_that_of_the_docstrings(site):
    text = (site / "docs" / "python.html").read_text()
    for word in ("tfopt.component.component", "tfopt.errors.ComponentError", "what was expected"):
        assert word in text


@pytest.mark.parametrize("target", ["python.md", "no_such_page.md"])
def test_a_broken_link_fails_the_build(target, tmp_path, monkeypatch):
    """Build pages without text, except for one link."""
    builder = load_builder()
    stage = builder.stage

    def stage_one_link(folder: Path, repository: str | None) -> None:
        stage(folder, repository)
        for page in folder.rglob("*.md"):
            page.write_text("# A page\n")
        (folder / "docs" / "glossary.md").write_text(f"[a page]({target})")

    monkeypatch.setattr(builder, "stage", stage_one_link)
    is_broken = target.startswith("no_such")
    with pytest.raises(subprocess.CalledProcessError) if is_broken else contextlib.nullcontext():
        builder.build(tmp_path / "site")


def test_links_to_folders_lead_to_the_repository_if_it_is_named(tmp_path):
    load_builder().stage(tmp_path / "with", "https://forge.example/tfopt")
    load_builder().stage(tmp_path / "without", None)
    assert "(https://forge.example/tfopt/tree/v" in (tmp_path / "with/docs/troubleshooting.md").read_text()
    assert "roles in deploy/kubernetes" in (tmp_path / "without/docs/troubleshooting.md").read_text()
