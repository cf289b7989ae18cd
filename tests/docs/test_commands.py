"""Test that commands in the docs name options that exist, in pages whose commands take too long to run."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from tfopt.cli.arguments import CommandParser
from tfopt.cli.commands import COMMANDS
from tfopt.component import find
from tfopt.declaration.library import component_names

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md"), ROOT / "README.md"])


def commands(page: Path) -> list[list[str]]:
    """Return the words of each command in a code block or between backticks."""
    text = page.read_text()
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [*blocks.splitlines(), *(line.replace("\n", " ") for line in inline)]
    return [shlex.split(line, comments=True) for line in lines if re.match(r"(tfopt|python benchmarks)", line)]


def options(words: list[str]) -> list[str]:
    """Return the long options of a command without the dashes and values."""
    return [word[2:].partition("=")[0] for word in words if word.startswith("--") and word != "--help"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_of_components_exist(page: Path):
    for words in commands(page):
        if words[0] == "tfopt" and len(words) > 1 and words[1] in component_names():
            component = find(words[1])
            names = {name.replace("_", "-") for name in [*component.inputs, *component.outputs, *component.parameters]}
            names |= {"beam-pipeline-arg"} if component.beam else set()
            names |= {"detailed-exitcode"} if "drift" in component.outputs else set()
            unknown = {name for name in options(words) if name.removeprefix("no-") not in names}
            assert not unknown, words


def test_options_of_other_commands_exist():
    choices = argparse.ArgumentParser().add_subparsers(parser_class=CommandParser)
    for add_command in COMMANDS.values():
        add_command(choices)
    everywhere = {"--debug", "--log-format"}
    accepted = {name: everywhere | set(parser._option_string_actions) for name, parser in choices.choices.items()}
    shown = [words for page in PAGES for words in commands(page) if words[0] == "tfopt" and words[1:2]]
    unknown = {
        option
        for words in shown
        for option in options(words)
        if f"--{option}" not in accepted.get(words[1], {f"--{option}"})
    }
    assert unknown == {"epoch"}  # in docs/adoption.md, about an error message


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_of_benchmarks_exist(page: Path):
    for words in commands(page):
        if words[0] == "python":
            source = (ROOT / words[1]).read_text()
            assert not [name for name in options(words) if f'"--{name}"' not in source], words


def test_commands_are_recognized():
    recognized = [words for page in PAGES for words in commands(page)]
    assert sum(words[0] == "tfopt" for words in recognized) > 20
    assert sum(words[0] == "python" for words in recognized) > 10
