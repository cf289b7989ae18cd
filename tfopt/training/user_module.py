"""The user's Python file: run it, call its functions, and quote file and line if it raises."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tfopt.error_messages import install_command, nearest
from tfopt.errors import ComponentError

NAME = "tfopt_user_module"


def check_syntax(path: Path, source: bytes | None = None) -> CodeType:
    """Compile the file, or its source from another machine; raise ComponentError with the line of a syntax error."""
    try:
        return compile(path.read_bytes() if source is None else source, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        raise ComponentError(f"module {path}:\n{text}", "a Python file", "correct that line") from error


class UserModule:
    """The user's file as a module. It is run from its source, so any path works and no bytecode is written."""

    def __init__(self, path: Path, source: bytes | None = None) -> None:
        """Run the file, or its source from another machine; raise ComponentError with the traceback if it raises."""
        self.path = path
        self._module = ModuleType(NAME)
        self._module.__file__ = str(path)
        sys.modules[NAME] = self._module  # dataclasses look their module up there
        code = check_syntax(path, source)
        self._guard("importing it", lambda: exec(code, self._module.__dict__))

    @property
    def namespace(self) -> dict[str, object]:
        """The names that the module defines."""
        return vars(self._module)

    def function(self, name: str) -> Callable[..., Any] | None:
        """Return the function of that name; None if the module has none."""
        function = getattr(self._module, name, None)
        return function if callable(function) else None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function; raise ComponentError if there is none (similar names are offered), or if it raises."""
        function = self.function(name)
        if function is None:
            names = [key for key, value in vars(self._module).items() if callable(value) and not key.startswith("_")]
            raise ComponentError(f"module {self.path}: no function {name}", f"def {name}(…)", nearest(name, names))
        return self._guard(f"{name}()", lambda: function(*arguments))

    def quote(self, error: BaseException) -> str | None:
        """Return the traceback from the first line of the user's file on; None if the file is not in the traceback."""
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != str(self.path):
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip() if trace else None

    def _guard(self, action: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and GeneratorExit too: they would end the process without a reason
            text = self.quote(error) or "".join(traceback.format_exception(error)).rstrip()
            fix = "correct the line shown above"
            if isinstance(error, ModuleNotFoundError):
                one_file = "put everything into this one file: only it is copied to where it runs"
                fix = install_command(error) or f"install {error.name}, or {one_file}"
            raise ComponentError(f"module {self.path}: {action} raised\n{text}", "a module that runs", fix) from error
