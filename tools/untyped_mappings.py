"""Count `dict[str, Any]` in the product's code and fail above a limit (`make check` runs it).

Its keys and values are not checked. Declare a dataclass or a TypedDict where the code reads the keys, and `JsonObject`
of `tfopt.value_types` for content that is only passed on.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("tfopt", "components", "pipelines")
UNTYPED = "dict[str, Any]"
LIMIT = 52  # the number reached; lower it with every one that is replaced


def main() -> int:
    """Print the number, and return 1 with the number by file if it is above the limit."""
    counts = count_by_file(ROOT)
    total = sum(counts.values())
    print(f"{total} of at most {LIMIT} mappings are {UNTYPED}")
    if total <= LIMIT:
        return 0
    for path, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:4} {path}")
    return 1


def count_by_file(root: Path) -> dict[str, int]:
    """Return the number in each file that has one; files behind links count once."""
    files = {file.resolve() for folder in FOLDERS for file in (root / folder).rglob("*.py")}
    counts = {file.relative_to(root.resolve()).as_posix(): file.read_text().count(UNTYPED) for file in files}
    return {path: count for path, count in counts.items() if count}


if __name__ == "__main__":
    sys.exit(main())
