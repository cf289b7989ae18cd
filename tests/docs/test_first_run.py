"""Test the pictures of docs/first_run.md, and the script that takes them."""

import importlib.util
import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs" / "first_run").iterdir())


@pytest.fixture(scope="module")
def first_run():
    spec = importlib.util.spec_from_file_location("first_run", ROOT / "docs" / "first_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.name)
def test_a_picture_is_small_shown_and_loads_nothing(file):
    assert file.stat().st_size < 200_000
    assert f"](first_run/{file.name})" in (ROOT / "docs" / "first_run.md").read_text()
    if file.suffix == ".svg":
        outside = re.findall(r'(?:href|src|url)\W+(?:https?:)?//[^"\')]+', file.read_text())
        assert not outside
        assert "/tmp/" not in file.read_text()
    else:
        assert Image.open(file).width == 1280


def test_the_page_shows_light_and_dark():
    light, dark = (Image.open(ROOT / "docs" / "first_run" / f"report{name}.png").convert("L") for name in ("", "-dark"))
    corners = [picture.getpixel((2, 2)) for picture in (light, dark)]
    assert corners[0] > 200
    assert corners[1] < 60


def test_the_output_of_a_terminal_becomes_text_in_a_picture(first_run, tmp_path):
    first_run.draw_terminal("$ tfopt list\npipelines <x>: ä\n", tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert "font-face" not in svg
    assert "tfopt&#160;list" in svg and "&lt;x&gt;" in svg


def test_a_page_becomes_a_picture_in_both_color_schemes(first_run, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<meta name="color-scheme" content="light dark"><p>text')
    colors = []
    for dark in (False, True):
        first_run.take_picture(page, tmp_path / "a.png", dark=dark)
        picture = Image.open(tmp_path / "a.png").convert("L")
        assert picture.size == (1280, 1000)
        colors.append(picture.getpixel((900, 900)))
    assert colors[0] > 200 > 60 > colors[1]
