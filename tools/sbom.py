"""Write the bill of materials of an image, in CycloneDX: Python and its packages, Debian's packages, and all licenses.

Usage: python tools/sbom.py KIND [IMAGE]. It reads what the image contains, with Docker, and takes the hashes of Python
packages from ``requirements/KIND.txt``, and from ``requirements/tensorrt.txt`` if the image has TensorRT.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.spdx import fixup_id, is_expression
from cyclonedx.validation.json import JsonStrictValidator

import tfopt

ROOT = Path(__file__).resolve().parents[1]
# An entry of requirements/tensorrt.txt that is in no image: it downloads TensorRT's libraries while the image is built.
BUILDER = re.compile(r"^wheel-stub==(?:.*\\\n)*.*\n", re.M)
INVENTORY = ROOT / "tools" / "image_inventory.py"


def write_bill(kind: str, image: str, folder: Path) -> Path:
    """Write ``tfopt-KIND.cdx.json`` into a folder and return its path.

    Raises:
        ValueError: If the image has other Python packages than its list, or the file does not fit the schema.
    """
    inventory = read_inventory(image)
    licenses = {_normalized(package["name"]): package["licenses"] for package in inventory["packages"]}
    bill = hashed_packages([kind, "tensorrt"] if "tensorrt-cu12" in licenses else [kind])
    listed = {_normalized(component["name"]) for component in bill["components"]}
    if missing := listed - licenses.keys():
        raise ValueError(f"{image} lacks packages of requirements/{kind}.txt: {', '.join(sorted(missing))}")
    for component in bill["components"]:
        component["licenses"] = _license_choice(licenses[_normalized(component["name"])])
        del component["description"]  # the line of the list, with all hashes
    release = inventory["distribution"]
    bill["components"] += [_debian_component(package, release) for package in inventory["debian"]]
    bill["components"].append(
        {
            "type": "platform",
            "bom-ref": "python",
            "name": "python",
            "version": inventory["python"],
            "licenses": _license_choice(["PSF-2.0"]),
        }
    )
    bill["metadata"]["component"] |= {"type": "container", "name": f"tfopt-{kind}", "version": tfopt.__version__}
    bill["dependencies"] += [{"ref": component["bom-ref"]} for component in bill["components"][len(listed) :]]
    for component in bill["components"]:
        if not component["licenses"]:
            del component["licenses"]
    text = json.dumps(bill, indent=1) + "\n"
    if error := JsonStrictValidator(SchemaVersion.from_version(bill["specVersion"])).validate_str(text):
        raise ValueError(f"{kind}: {error}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"tfopt-{kind}.cdx.json"
    file.write_text(text)
    return file


def read_inventory(image: str) -> dict[str, Any]:
    """Return what `tools/image_inventory.py` prints in an image."""
    words = ["docker", "run", "--rm", "--interactive", "--network=none", "--read-only", image, "python3", "-"]
    done = subprocess.run(words, input=INVENTORY.read_text(), capture_output=True, text=True, check=True)
    inventory: dict[str, Any] = json.loads(done.stdout)
    return inventory


def hashed_packages(lists: list[str]) -> dict[str, Any]:
    """Return the bill of the packages of lists, with their hashes, as cyclonedx-py writes it."""
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"]
    words = [sys.executable, "-m", "cyclonedx_py", "requirements", *options, "-"]
    text = BUILDER.sub("", "".join((ROOT / "requirements" / f"{name}.txt").read_text() for name in lists))
    bill: dict[str, Any] = json.loads(
        subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    )
    return bill


def _debian_component(package: dict[str, Any], release: dict[str, str]) -> dict[str, Any]:
    name, version = quote(package["name"], safe=""), quote(package["version"], safe="")
    distribution = f"{release['id']}-{release['version_id']}"
    purl = f"pkg:deb/{release['id']}/{name}@{version}?arch={package['architecture']}&distro={distribution}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "purl": purl,
        "licenses": _license_choice(package["licenses"]),
    }


def _license_choice(texts: list[str]) -> list[dict[str, Any]]:
    """Return licenses as CycloneDX has them: one SPDX expression, or a list of SPDX identifiers and names."""
    if len(texts) == 1 and not fixup_id(texts[0]) and is_expression(texts[0]):
        return [{"expression": texts[0]}]
    ids = [fixup_id(text) for text in texts]
    return [{"license": {"id": id} if id else {"name": text}} for id, text in zip(ids, texts, strict=True)]


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    kind = sys.argv[1]
    image = sys.argv[2] if len(sys.argv) > 2 else f"tfopt-{kind}:{tfopt.__version__}"
    print(write_bill(kind, image, ROOT / "dist"))
