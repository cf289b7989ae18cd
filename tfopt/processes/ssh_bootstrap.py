"""Start a worker on another machine: `ssh_worker` sends this file to any Python 3 there, which needs nothing else.

It reports what this Python has, receives the library unless it is in the cache, and runs the worker's module.
"""

import importlib.util
import io
import json
import os
import runpy
import sys
import tempfile
import zipfile
from pathlib import Path

MARK = b"\n-- tfopt worker --\n"  # a shell may print other lines before it


def main(digest: str, module: str, *packages: str) -> None:
    """Run a module of the library whose sources have this digest; the client needs to know which packages are missing.

    The module gets the descriptor of the answers and the folder of the cache as arguments, and calls on descriptor 0.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    sys.path[:] = [path for path in sys.path if path]
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(home or Path.home() / ".cache", "tfopt", "device")
    code = cache / digest
    facts = {
        "python": list(sys.version_info[:3]),
        "program": sys.executable,
        "missing": [name for name in packages if importlib.util.find_spec(name) is None],
        "has_library": code.is_dir(),
    }
    os.write(answers, MARK + json.dumps(facts).encode() + b"\n")
    size = int.from_bytes(_read(8), "big")
    if size:
        _unpack(_read(size), cache, code)
    os.utime(code)  # the folders that were not used for the longest time are removed first
    sys.path.insert(0, str(code))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.argv = [module, str(answers), str(cache)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _unpack(archive: bytes, cache: Path, target: Path) -> None:
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=str(cache), prefix=".library-") as folder:
        new = Path(folder, "library")
        zipfile.ZipFile(io.BytesIO(archive)).extractall(str(new))
        if not target.is_dir():  # another connection may have been faster
            new.rename(target)


def _read(size: int) -> bytes:
    """Read so many bytes of the standard input and not more: calls follow."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            sys.exit("the connection was closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main(*sys.argv[2:])
