"""Test that package lists, Dockerfiles and the bake file match the lock, the components and the version."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tfopt.component import components
from tfopt.kfp.images import CUDA_KINDS, KINDS

ROOT = Path(__file__).parents[2]
BAKE = json.loads((ROOT / "deploy" / "images" / "docker-bake.json").read_text())
OWN_VERSIONS = {"ml-metadata", "tensorflow-data-validation", "google-apitools"}  # those for Python 3.13 and its glibc
# The keys of a target in a bake file and the types of their values (Docker's bake file reference).
TARGET_KEYS: dict[str, type] = {
    **dict.fromkeys(("context", "dockerfile", "dockerfile-inline", "target", "network"), str),
    **dict.fromkeys(("args", "contexts", "labels"), dict),
    **dict.fromkeys(("tags", "platforms", "inherits", "secret", "ssh", "output", "annotations", "attest"), list),
    **dict.fromkeys(("cache-from", "cache-to"), list),
    **dict.fromkeys(("no-cache", "pull"), bool),
}


def pins(file: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / file).read_text(), re.M))


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_has_the_locked_versions_and_one_tensorflow(kind):
    lock = pins("lock.txt")
    pinned = {name: version for name, version in pins(f"{kind}.txt").items() if not name.startswith("nvidia-")}
    assert ("tensorflow" in pinned) == (kind in CUDA_KINDS)
    assert pinned.pop("tensorflow" if kind in CUDA_KINDS else "tensorflow-cpu") == lock["tensorflow"]
    assert {name for name in pinned if pinned[name] != lock[name]} == (OWN_VERSIONS if kind == "tfx" else set())


def test_the_image_gpu_has_one_version_of_cuda_for_tensorflow_and_tensorrt():
    pinned = pins("gpu.txt")
    cuda = [name for name in pinned if name.startswith("nvidia-")]
    assert {"nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-cuda-nvcc-cu12"} < set(cuda)
    of_release = [
        "cuda-bindings",
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-nvcc-cu12",
    ]  # TensorRT is called through the first
    assert {pinned[name].rpartition(".")[0] for name in of_release} == {"12.9"}


def test_the_packages_of_tensorrt_have_one_version_and_the_cuda_of_the_image():
    pinned = pins("tensorrt.txt")
    assert pinned.pop("wheel-stub")
    assert set(pinned) == {f"tensorrt-{part}" for part in ("cu12", "cu12-bindings", "cu12-libs", "lean-cu12-libs")}
    (version,) = set(pinned.values())
    assert version.startswith("10.11.")  # the code was compared with the bindings of 10.11 and 11.1
    assert not pinned.keys() & pins("gpu.txt").keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_base_of_an_image_is_named_by_digest(kind):
    dockerfile = (ROOT / BAKE["target"][kind]["dockerfile"]).read_text()
    bases = set(re.findall(r"^FROM (\S+)", dockerfile, re.M)) - set(re.findall(r" AS (\w+)", dockerfile))
    names = {re.search(rf"^ARG {base[2:-1]}=(.+)", dockerfile, re.M)[1] if "$" in base else base for base in bases}
    parents = set(BAKE["target"][kind].get("contexts", {}))
    assert len(names) == 1
    assert all(name in parents or re.search(r"@sha256:[0-9a-f]{64}$", name) for name in names)


def test_tfx_in_an_image_has_its_own_pins_of_ml_metadata_and_tfdv():
    pinned = pins("tfx.txt")
    assert pinned["ml-metadata"] == pinned["tensorflow-data-validation"] == pinned["tfx"]


def test_all_images_have_one_base_whose_python_the_lists_are_resolved_for():
    (python,) = re.findall(r"^(?:requirements/.*)?IMAGE_PYTHON := (\S+)", (ROOT / "Makefile").read_text(), re.M)
    dockerfiles = [(ROOT / target["dockerfile"]).read_text() for target in BAKE["target"].values()]
    (base,) = {base for text in dockerfiles for base in re.findall(r"^ARG PYTHON=(\S+)", text, re.M)}
    assert base.startswith(f"python:{python}-slim-")


@pytest.mark.parametrize(("kind", "contained"), [(kind, other) for kind in KINDS for other in KINDS[kind]])
def test_an_image_contains_the_packages_of_the_kinds_that_it_replaces(kind, contained):
    packages = dict(pins(f"{contained}.txt"))
    if kind in CUDA_KINDS:
        packages.pop("tensorflow-cpu", None)
    assert packages.items() <= pins(f"{kind}.txt").items()


@pytest.mark.parametrize("kind", [*KINDS, "lock", "tensorrt", "release"])
def test_every_package_is_pinned_by_hash_and_no_index_is_named(kind):
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    assert "://" not in text
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in entry, entry


def test_lists_are_resolved_with_the_packages_of_one_day(tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    words = ["make", "--dry-run", "--always-make", "--assume-old=.venv/bin/uv", "lock", "lock-images"]
    planned = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    resolutions = re.findall("pip compile .*", planned.replace("\\\n", " "))
    written = {re.search(r"--output-file requirements/(\S+)\.txt", line)[1] for line in resolutions}
    assert written == {*KINDS, "lock", "tensorrt", "release", "uv"}
    (day,) = {re.search(r"--exclude-newer (\S+)", line)[1] for line in resolutions}
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT00:00:00Z", day)
    assert all("--upgrade" in line for line in resolutions)


@pytest.mark.nightly
def test_resolving_again_from_nothing_gives_the_committed_lists(tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml", "README.md", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tfopt").mkdir()
    shutil.copy(ROOT / "tfopt" / "__init__.py", tmp_path / "tfopt")
    lists = {file.name: file.read_bytes() for file in (ROOT / "requirements").glob("*.txt")}
    for name in lists.keys() - {"no-tensorflow.txt", "uv.txt"}:  # the first is written by hand; uv resolves
        (tmp_path / "requirements" / name).unlink()
    done = subprocess.run(["make", "lock", "lock-images"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_bytes() for file in (tmp_path / "requirements").glob("*.txt")} == lists


def test_the_list_of_the_release_workflow_has_the_locked_versions():
    assert pins("release.txt").items() <= pins("lock.txt").items()


def test_tensorrt_is_a_build_argument_whose_list_exists():
    dockerfile = (ROOT / BAKE["target"]["gpu"]["dockerfile"]).read_text()
    (listed,) = re.findall(r"^ARG TENSORRT=(\S+)$", dockerfile, re.M)
    assert listed == BAKE["variable"]["TENSORRT"]["default"] == "requirements/tensorrt.txt"
    assert (ROOT / listed).is_file()


def test_the_kinds_are_those_of_the_bake_file():
    assert list(KINDS) == list(BAKE["target"])


def test_the_image_of_each_component_is_in_the_bake_file():
    for component in components().values():
        assert component.image in BAKE["target"]


@pytest.mark.parametrize("kind", BAKE["target"])
def test_a_bake_target_has_a_dockerfile_and_the_tag_of_the_version(kind):
    target = BAKE["target"][kind]
    dockerfile = (ROOT / target["dockerfile"]).read_text()
    assert target["tags"] == [f"${{REGISTRY}}tfopt-{kind}:${{VERSION}}"]
    assert all(re.search(rf"^ARG {name}(=|$)", dockerfile, re.M) for name in target.get("args", {}))
    assert all(f"FROM {name}" in dockerfile for name in target.get("contexts", {}))
    assert dockerfile.count("\nUSER 10001:10001\n") == 1
    assert f'image.title="tfopt-{kind}"' in dockerfile
    assert not re.search(r"https?://", dockerfile)


def test_the_bake_file_has_known_keys_and_declared_variables_and_targets():
    """Check what buildx, which is not installed, would refuse: unknown keys, unknown targets and unset variables."""
    assert set(BAKE) == {"variable", "group", "target"}
    assert all(set(variable) == {"default"} for variable in BAKE["variable"].values())
    for target in BAKE["target"].values():
        assert all(isinstance(value, TARGET_KEYS[key]) for key, value in target.items()), target
        parents = {name.removeprefix("target:") for name in target.get("contexts", {}).values()}
        assert parents <= set(BAKE["target"])
    assert set(BAKE["group"]["default"]["targets"]) <= set(BAKE["target"])
    used = set(re.findall(r"\$\{(\w+)\}", json.dumps(BAKE)))
    assert used == set(BAKE["variable"])


@pytest.mark.parametrize("kind", BAKE["target"])
def test_a_dockerfile_has_stages_hashes_a_user_labels_and_no_entrypoint(kind):
    text = (ROOT / BAKE["target"][kind]["dockerfile"]).read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert {line.split()[0] for line in lines} <= {*("ARG", "FROM", "RUN", "ENV", "COPY", "LABEL", "USER", "WORKDIR")}
    last = lines[[number for number, line in enumerate(lines) if line.startswith("FROM")][-1] :]
    assert not [line for line in lines if line.startswith(("ENTRYPOINT", "CMD"))]
    assert "USER 10001:10001" in last
    assert "org.opencontainers.image.description" in " ".join(last)
    for line in lines:
        if "pip install" in line and ".txt" in line:
            assert "--require-hashes" in line
            assert "--no-deps" in line
    stages = re.findall(r"^FROM \S+ AS (\w+)$", text, re.M)
    assert set(re.findall(r"from=(\w+)", text)) <= set(stages)
    if kind != "beam":  # it only adds packages to `tf`, so it needs no build stage
        assert stages
