"""Build the documentation site: the repository's Markdown files, with the links that they have (`make site`).

    python tools/site.py FOLDER [REPOSITORY]

The pages are copied into a folder with the same paths, so that each link works on the forge and on the site. README
files become the index of their folder. Other files that a page links to are copied too. Links to folders without a
page lead to the repository, if its web address is given, and are text otherwise.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tfopt

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = ("*.md", "docs/**/*.md", "components/*.md", "components/*/*.md", "tfopt/graph/laws/*.md")
LINK = re.compile(r"(?P<text>\[[^\]\n]*\])\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def build(folder: Path, repository: str | None = None) -> None:
    """Build the site into a folder; raise CalledProcessError if a link or an anchor leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="tfopt-site-") as scratch:
        source = Path(scratch)
        stage(source / "pages", repository)
        shutil.copy(ROOT / "docs" / "zensical.toml", source)
        shutil.copy(ROOT / "docs" / "site.css", source / "pages" / "docs")
        (source / "tfopt").symlink_to(ROOT / "tfopt")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        subprocess.run(command, cwd=source, check=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source / "site", folder)


def stage(folder: Path, repository: str | None) -> None:
    """Copy the pages, and the files that they link to, into a folder."""
    pages = {page for pattern in PATTERNS for page in ROOT.glob(pattern)}
    linked: set[Path] = set()
    for page in pages:
        target = folder / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_rewrite(page, pages, linked, repository))
    for file in linked - pages:
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _rewrite(page: Path, pages: set[Path], linked: set[Path], repository: str | None) -> str:
    """Return the text of a page for the site, and add the files that it links to."""

    def replace(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / link["path"]))
        if path.is_file():
            linked.add(path)
            return link[0]
        if path / "README.md" in pages:
            return f"{link['text']}({link['path'].rstrip('/')}/README.md{link['anchor'] or ''})"
        if repository:
            address = f"{repository.rstrip('/')}/tree/v{tfopt.__version__}/{path.relative_to(ROOT)}"
            return f"{link['text']}({address})"
        return link["text"][1:-1]

    return LINK.sub(replace, page.read_text())


if __name__ == "__main__":
    build(Path(sys.argv[1]), *filter(None, sys.argv[2:]))
