"""Print what an image contains, as JSON: its Python, Python packages and Debian packages, with their licenses.

`tools/sbom.py` runs this file with the Python of the image; it imports the standard library only.
"""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

QUERY = "${Package}\t${Version}\t${Architecture}\n"
LICENSE_FIELD = re.compile(r"^License: *(\S.*?) *$", re.M)  # of Debian's machine-readable copyright files


def python_packages() -> list[dict[str, object]]:
    """Return name, version and declared licenses of each distribution: an SPDX expression, else free text."""
    return [
        {"name": package.metadata["Name"], "version": package.version, "licenses": _licenses(package.metadata)}
        for package in importlib.metadata.distributions()
    ]


def _licenses(metadata: importlib.metadata.PackageMetadata) -> list[str]:
    values = {name: metadata.get_all(name) or [] for name in ("License-Expression", "License", "Classifier")}
    classifiers = [text.split(" :: ")[-1] for text in values["Classifier"] if text.startswith("License :: ")]
    short = [text.strip() for text in values["License"] if text.strip() not in ("", "UNKNOWN") and len(text) < 80]
    return values["License-Expression"] or short or [text for text in classifiers if text != "OSI Approved"]


def debian_packages() -> list[dict[str, object]]:
    """Return name, version, architecture and licenses of each installed Debian package."""
    listed = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={QUERY}"], capture_output=True, text=True, check=True
    )
    packages = []
    for line in listed.stdout.splitlines():
        name, version, architecture = line.split("\t")
        file = Path("/usr/share/doc", name, "copyright")
        text = file.read_text(errors="replace") if file.is_file() else ""
        licenses = sorted(set(LICENSE_FIELD.findall(text))) or ([f"see {file}"] if text else [])
        packages.append({"name": name, "version": version, "architecture": architecture, "licenses": licenses})
    return packages


if __name__ == "__main__":
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    content = {
        "python": sys.version.split()[0],
        "distribution": {name: release[name.upper()].strip('"') for name in ("id", "version_id")},
        "packages": python_packages(),
        "debian": debian_packages(),
    }
    print(json.dumps(content))
