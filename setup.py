"""Generate type stubs before a build: the only part of it that `pyproject.toml` cannot say."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

GENERATOR = "tools/type_stubs.py"


class BuildWithStubs(build_py):
    """Build the packages of a wheel or an editable install, with the stubs of `tools/type_stubs.py` in the sources."""

    def run(self) -> None:
        """Generate the stubs in a process of its own, so that setuptools' process imports no tfopt."""
        done = subprocess.run([sys.executable, Path(__file__).parent / GENERATOR], check=False)
        if done.returncode:  # no exception, which setuptools turns into a warning in an editable install
            sys.exit(
                f"received: an error of {GENERATOR}, above\nexpected: type stubs of the components\n"
                "how to fix: correct the declaration; if a package is missing, install it, or build with isolation"
            )
        super().run()

    def get_source_files(self) -> list[str]:
        """List the generator too, for the source distribution."""
        return [*super().get_source_files(), GENERATOR]


setup(cmdclass={"build_py": BuildWithStubs})
