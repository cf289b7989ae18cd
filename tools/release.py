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
KINDS = ("Highlights", "Added", "Changed", "Removed", "Fixed")  # sections of a version, in the order of its readers
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
    head, _, rest = changelog.partition(UNRELEASED)
    changes, separator, earlier = rest.partition("\n## ")
    if not changes.strip():
        sys.exit("received: no change under Unreleased\nexpected: one line per change\nhow to fix: write CHANGELOG.md")
    heading = f"## {version} ({today.isoformat()})\n"
    _rewrite(root / "CHANGELOG.md", f"{head}{UNRELEASED}\n{heading}\n{grouped(changes)}{separator}{earlier}")
    source = root / "tfopt" / "__init__.py"
    _rewrite(source, VERSION.sub(f'__version__ = "{version}"', source.read_text()))
    generator = root / "docs" / "generate.py"
    verified = f"VERIFIED = datetime({today.year}, {today.month}, {today.day}"
    _rewrite(generator, VERIFIED.sub(verified, generator.read_text()))
    manifests = (*root.glob("docs/**/*.yaml"), *root.glob("deploy/kubernetes/**/*.yaml"))  # deploy/kfp is generated
    for page in (root / "README.md", *root.glob("docs/**/*.md"), *manifests):
        _rewrite(page, IMAGE.sub(rf"\1:{version}", page.read_text()))


def grouped(changes: str) -> str:
    """Return the sections ``### KIND: topic`` of a version by kind, in the order in which each kind's were written.

    Raises:
        SystemExit: If a section has another kind, or a line is in no section.
    """
    before, *sections = re.split(r"^### ", changes, flags=re.M)
    if before.strip():
        sys.exit(f"received: {before.strip()}\nexpected: a section\nhow to fix: write a heading above these lines")
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for section in sections:
        kind = section.splitlines()[0].partition(":")[0]
        if kind not in by_kind:
            sys.exit(f"received: the section {kind}\nexpected: one of {', '.join(KINDS)}\nhow to fix: rename it")
        by_kind[kind].append(f"### {section.strip()}\n")
    return "\n".join(text for kind in KINDS for text in by_kind[kind])


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
