"""Build the source distribution and, from it, the wheel, with links that work on a package index (`make dist` runs it).

    python tools/distribution.py FOLDER [REPOSITORY]

REPOSITORY is the web address of this repository, such as ``https://github.com/OWNER/tfopt``: links of the README become
links to the tag of this version there, and the metadata name it. Without it, links stay relative and no URL is named.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tfopt

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tfopt", "components", "pipelines")
FILES = (
    "pyproject.toml",
    "setup.py",
    "tools/type_stubs.py",
    "tfopt/__init__.pyi",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)
LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?![a-z]+:|#)(?P<path>[^)#]+)(?P<anchor>#[^)]*)?\)")


def build(folder: Path, repository: str | None = None) -> list[Path]:
    """Build both distributions into a folder, from a copy of the sources, because setuptools writes next to them.

    Args:
        folder: Receives the files.
        repository: Web address of the repository.

    Returns:
        The wheel and the source distribution.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        source = Path(scratch, "source")
        copy_sources(source)
        if repository:
            readme, metadata = source / "README.md", source / "pyproject.toml"
            readme.write_text(absolute_links(readme.read_text(), repository))
            metadata.write_text(
                metadata.read_text().replace("[project.scripts]", f"{urls(repository)}\n[project.scripts]")
            )
        subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", scratch, source], check=True)
        files = sorted(file for pattern in ("*.whl", "*.tar.gz") for file in Path(scratch).glob(pattern))
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(file, folder)) for file in files]


def copy_sources(folder: Path) -> None:
    """Copy what a distribution is built from, without generated files."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.pyi")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def absolute_links(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead to the tag of this version in the repository."""

    def replace(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "tree" if (ROOT / link["path"]).is_dir() else "blob"
        address = f"{repository.rstrip('/')}/{kind}/v{tfopt.__version__}/{link['path']}"
        return f"{link['image']}{link['text']}({address}{link['anchor'] or ''})"

    return LINK.sub(replace, text)


def urls(repository: str) -> str:
    """Return the table of URLs for ``pyproject.toml``."""
    address = repository.rstrip("/")
    version = f"{address}/blob/v{tfopt.__version__}"
    return f"""[project.urls]
Source = "{address}"
Documentation = "{address}/tree/v{tfopt.__version__}/docs"
Changelog = "{version}/CHANGELOG.md"
Issues = "{address}/issues"
"""


if __name__ == "__main__":
    for file in build(Path(sys.argv[1]), *filter(None, sys.argv[2:])):
        print(file)
