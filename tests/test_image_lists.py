"""What the images are made from fits the lock, the components and the version; no image is built here."""

import json
import re
from pathlib import Path

import pytest

from tfopt.component import components

ROOT = Path(__file__).parents[1]
BAKE = json.loads((ROOT / "deploy" / "images" / "docker-bake.json").read_text())
KINDS = ("tf", "beam", "tfx")


def pins(file: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / file).read_text(), re.M))


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_has_the_locked_versions_and_the_tensorflow_for_cpus(kind):
    lock = pins("lock.txt")
    wanted = pins(f"{kind}.txt")
    assert wanted.pop("tensorflow-cpu") == lock["tensorflow"]
    assert "tensorflow" not in wanted
    assert wanted == {name: lock[name] for name in wanted}


@pytest.mark.parametrize(("below", "above"), [("tf", "beam"), ("beam", "tfx")])
def test_an_image_that_stands_on_another_changes_nothing_in_it(below, above):
    assert pins(f"{below}.txt").items() <= pins(f"{above}.txt").items()


@pytest.mark.parametrize("kind", KINDS)
def test_every_package_is_pinned_by_hash_and_no_index_is_named(kind):
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    assert "://" not in text
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in entry, entry


def test_each_kind_that_a_component_names_has_a_dockerfile_and_is_baked():
    for component in components().values():
        assert component.image in BAKE["target"]


@pytest.mark.parametrize("kind", BAKE["target"])
def test_what_is_baked_is_there_and_tagged_with_the_version(kind):
    target = BAKE["target"][kind]
    dockerfile = (ROOT / target["dockerfile"]).read_text()
    assert target["tags"] == [f"${{REGISTRY}}tfopt-{kind}:${{VERSION}}"]
    assert all(f"ARG {name}\n" in dockerfile for name in target.get("args", {}))
    assert all(f"FROM {name}" in dockerfile for name in target.get("contexts", {}))
    assert dockerfile.count("\nUSER 10001:10001\n") == 1
    assert f'image.title="tfopt-{kind}"' in dockerfile
    assert not re.search(r"https?://", dockerfile)
