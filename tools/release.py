"""Prepare a release, or print the changelog section of a tag (the release workflow does).

python tools/release.py VERSION      # new version and date in all files; then `make docs`, review, commit, tag vVERSION
python tools/release.py --notes TAG  # the section of the tag's version; an error if the sources have another version
"""

import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "## Unreleased\n"
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.M)
IMAGE = re.compile(r"(?<=tfopt-)(\{kind\}|[a-z]+):\d+\.\d+\.\d+")
VERIFIED = re.compile(r"^VERIFIED = datetime\([^)]*?(?=, tzinfo)", re.M)


def notes(root: Path, tag: str) -> str:
    """Return the changelog section of a tag.

    Raises:
        SystemExit: If the sources have another version, or the changelog has no such section.
    """
    version = current_version(root)
    if tag != f"v{version}":
        sys.exit(
            f"received: the tag {tag}\nexpected: v{version}, of tfopt/__init__.py\nhow to fix: run tools/release.py"
        )
    section = re.search(
        rf"^## {re.escape(version)}(?: \([\d-]+\))?\n(.*?)(?=^## |\Z)", (root / "CHANGELOG.md").read_text(), re.M | re.S
    )
    if not section:
        sys.exit(
            f"received: CHANGELOG.md without a section {version}\nexpected: its changes\n"
            "how to fix: run tools/release.py"
        )
    return section[1].strip()


def prepare(root: Path, version: str, today: date) -> None:
    """Write a new version into the sources, the changelog and the image tags of the docs.

    Raises:
        SystemExit: If it is no later version, or there is nothing to release.
    """
    before = current_version(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or _numbers(version) <= _numbers(before):
        sys.exit(
            f"received: {version}\nexpected: a version after {before}, as X.Y.Z\n"
            "how to fix: see CONTRIBUTING.md, Releases"
        )
    changelog = (root / "CHANGELOG.md").read_text()
    _, _, rest = changelog.partition(UNRELEASED)
    if not rest.partition("\n## ")[0].strip():
        sys.exit("received: no change under Unreleased\nexpected: one line per change\nhow to fix: write CHANGELOG.md")
    heading = f"## {version} ({today.isoformat()})\n"
    _rewrite(root / "CHANGELOG.md", changelog.replace(UNRELEASED, f"{UNRELEASED}\n{heading}", 1))
    source = root / "tfopt" / "__init__.py"
    _rewrite(source, VERSION.sub(f'__version__ = "{version}"', source.read_text()))
    generator = root / "docs" / "generate.py"
    verified = f"VERIFIED = datetime({today.year}, {today.month}, {today.day}"
    _rewrite(generator, VERIFIED.sub(verified, generator.read_text()))
    manifests = (*root.glob("docs/**/*.yaml"), *root.glob("deploy/kubernetes/**/*.yaml"))  # deploy/kfp is generated
    for page in (root / "README.md", *root.glob("docs/**/*.md"), *manifests):
        _rewrite(page, IMAGE.sub(rf"\1:{version}", page.read_text()))


def current_version(root: Path) -> str:
    """Return the version of the sources, without importing them."""
    match = VERSION.search((root / "tfopt" / "__init__.py").read_text())
    if not match:
        sys.exit("received: tfopt/__init__.py without __version__\nexpected: one line\nhow to fix: restore it")
    return match[1]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _rewrite(file: Path, text: str) -> None:
    if text != file.read_text():
        file.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--notes"]:
        print(notes(ROOT, sys.argv[2]))
    else:
        prepare(ROOT, sys.argv[1], datetime.now(UTC).date())
