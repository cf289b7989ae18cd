"""Check the project's own text and names for plain technical English (`make check` runs it).

    python tools/plain_language.py [PATH ...]

Reported: docstrings that open with a question word, words and phrases on the list below (in docstrings, comments,
messages and Markdown), and variables, functions or modules named with ordinary words that say nothing of their content.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

# phrase: what to write instead
PHRASES = {
    r"said": "reported, printed, stated",
    r"told( of)?": "reported",
    r"asked( for| of)?": "requested",
    r"kept": "stored, cached, retained",
    r"anew": "again",
    r"beside": "next to, besides",
    r"nobody": "no user, no process",
    r"whoever": "the caller, users who",
    r"learnt": "trained, learned",
    r"handed on": "passed through",
    r"in the place of": "instead of",
    r"of which": "rephrase",
    r"the door of": "the declaration of",
    r"bad end": "pessimistic bound",
    r"beaten": "dominated, slower than",
    r"lies beside": "is stored next to",
    r"no number any ?more": "NaN",
    r"beyond doubt": "significantly",
    r"hushed": "silenced",
    r"mend(ed|s)?": "fix",
    r"wish(es)?": "request, settings",
}
NAMES = {
    "found": "the thing that was found: matches, layers, path",
    "given": "arguments, values",
    "said": "message, text",
    "asked": "request",
    "told": "message, lines",
    "kept": "stored, remaining",
    "learnt": "trained",
    "known": "the thing that is known",
    "wanted": "expected, requested",
    "taken": "used, selected",
    "anew": "again",
    "beside": "adjacent",
    "doubt": "half_interval",
}
GERUNDS = ("training", "tracing", "staging", "interleaving", "formatting", "serving")  # nouns of the field
QUESTION = re.compile(r"(What|Which|Whether|How|Those|Where|Who|Why)\b")
BANNED = re.compile(r"(?<![\w`.\"'-])(" + "|".join(PHRASES) + r")(?![\w`\"'-])", re.IGNORECASE)
SKIPPED = ("tests/kfp_server/swagger.json", "tools/plain_language.py", "tests/tools/test_plain_language.py")


def main(paths: list[str]) -> int:
    """Check the given files and folders, or the whole repository, and return 1 if anything was reported."""
    problems = [problem for file in files(paths) for problem in check(file)]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "plain language: ok")
    return bool(problems)


def files(paths: list[str]) -> list[Path]:
    """List the tracked Python and Markdown files below the paths."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *(paths or ["."])]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    chosen = [ROOT / name for name in listed if name.endswith((".py", ".md", ".j2")) and name not in SKIPPED]
    return [file for file in chosen if file.is_file() and not file.is_symlink()]


def check(file: Path) -> Iterator[str]:
    """Yield one line per problem in a file: path, line number, text, advice."""
    text = file.read_text()
    place = file.relative_to(ROOT)
    if file.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            yield from (f"{place}:{number}: {advice}" for advice in phrases(line))
        return
    tree = ast.parse(text)
    if file.stem.endswith("ing") and not file.stem.endswith(GERUNDS):
        yield f"{place}:1: module {file.stem}: name it with a noun"
    yield from (f"{place}:{line}: {advice}" for line, advice in docstrings(tree))
    if not file.stem.endswith("_report"):  # its fields are keys of JSON files, which stay the same
        yield from (f"{place}:{line}: {advice}" for line, advice in names(tree))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        prose = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string)
        if prose:
            for offset, line in enumerate(token.string.splitlines()):
                yield from (f"{place}:{token.start[0] + offset}: {advice}" for advice in phrases(line))


def phrases(line: str) -> list[str]:
    """Return advice for each banned phrase in a line."""
    return [f"{match[0]!r}: {_advice(match[0])}" for match in BANNED.finditer(line)]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings that open with a question word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module):
            text = ast.get_docstring(node) or ""
            if QUESTION.match(text):
                line = node.body[0].lineno
                yield line, f"docstring opens with {text.split()[0]!r}: start with a verb and its object"


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield variables, arguments, functions and classes with a banned name."""
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.alias):
            name = node.asname
        if name and (plain := name.strip("_").lower()) in NAMES:
            yield node.lineno, f"name {name!r}: {NAMES[plain]}"


def _advice(phrase: str) -> str:
    for pattern, advice in PHRASES.items():
        if re.fullmatch(pattern, phrase, re.IGNORECASE):
            return advice
    raise AssertionError(phrase)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
