"""Test the distributions of `make dist`: contents, metadata, links; and the refusal of other systems than Linux."""

import importlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import tfopt
from tests.deploy.distributions import REPOSITORY, distribution

ROOT = Path(__file__).parents[2]
PYTHONS = tuple(f"3.{minor}" for minor in (11, 12, 13))


@pytest.fixture(scope="module")
def files(built) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    (wheel,), (source,) = (list(built.glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, source


@pytest.fixture(scope="module")
def metadata(files):
    with zipfile.ZipFile(files[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_both_distributions_have_each_source_file_and_template(files):
    tracked = subprocess.run(
        ["git", "ls-files", "tfopt", "components", "pipelines"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    links = {"tfopt/components", "tfopt/pipelines"}
    names = {name if name.startswith("tfopt/") else f"tfopt/{name}" for name in tracked if name not in links}
    expected = {name for name in names if not name.endswith("README.md")}
    assert len(expected) > 500
    with zipfile.ZipFile(files[0]) as archive:
        assert not expected - set(archive.namelist())
    with tarfile.open(files[1]) as archive:
        assert not {f"tfopt-{tfopt.__version__}/{name}" for name in expected} - set(archive.getnames())


def test_the_metadata_name_version_license_system_pythons_and_addresses(metadata):
    assert (metadata["Name"], metadata["Version"]) == ("tfopt", tfopt.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    classifiers = metadata.get_all("Classifier")
    assert [text for text in classifiers if "Operating System" in text] == ["Operating System :: POSIX :: Linux"]
    assert {text.rpartition(" ")[2] for text in classifiers if re.search(r":: 3\.\d", text)} == set(PYTHONS)
    addresses = dict(entry.split(", ") for entry in metadata.get_all("Project-URL"))
    assert set(addresses) == {"Source", "Documentation", "Changelog", "Issues"}
    assert all(address.startswith(REPOSITORY) for address in addresses.values())


def test_the_links_of_the_long_description_lead_to_the_tag_in_the_repository(metadata):
    text = metadata.get_payload()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    relative = re.findall(r"\]\((?!https://)[^)]+\)", (ROOT / "README.md").read_text())
    links = [(image, address) for image, address in links if address.startswith(REPOSITORY)]
    assert len(links) == len(relative)
    assert len(links) > 30
    pattern = rf"{REPOSITORY}/(raw|tree|blob)/v{re.escape(tfopt.__version__)}/([^#]+)"
    for image, address in links:
        kind, path = re.match(pattern, address).groups()
        assert (ROOT / path).exists()
        assert kind == ("raw" if image else "tree" if (ROOT / path).is_dir() else "blob")


def test_only_relative_links_are_changed():
    text = "[a](docs/b.md#c) [d](#e) [f](https://g) ![h](docs/report.png) [i](mailto:j)"
    tag = f"v{tfopt.__version__}"
    assert distribution().absolute_links(text, "https://r/") == (
        f"[a](https://r/blob/{tag}/docs/b.md#c) [d](#e) [f](https://g) ![h](https://r/raw/{tag}/docs/report.png) "
        "[i](mailto:j)"
    )


@pytest.mark.nightly  # daily: the files of both distributions
def test_the_wheel_runs_from_another_folder(files, tmp_path):
    """Run the wheel's own files: declarations, and templates that are read when they are needed."""
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, files[0]]
    subprocess.run(pip, check=True)
    rows = [f"{number % 7},{number * 2}" for number in range(50)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,price", *rows]))
    for words in (["list"], ["init", "mine", "--data", "rows.csv", "--label", "price"]):
        done = subprocess.run(
            [sys.executable, "-m", "tfopt.run", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(target)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine" / "retrain.yaml").is_file()
    origin = [sys.executable, "-c", "import tfopt; print(tfopt.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run(origin, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(target / "tfopt" / "__init__.py")


def test_the_supported_pythons_are_those_of_the_classifiers_and_the_requirement():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={PYTHONS[0]},<3.{int(PYTHONS[-1].partition('.')[2]) + 1}"


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_another_system_is_refused_when_tfopt_is_imported(system, monkeypatch):
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(ImportError, match=f"received: Python on {system}\nexpected: .*Linux\nhow to fix: "):
        importlib.reload(tfopt)
    monkeypatch.undo()
    importlib.reload(tfopt)
