"""The user's Python file: run, asked for its functions, and quoted with file and line when it raises."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tfopt.errors import ComponentError, nearest

NAME = "tfopt_user_module"


def check_syntax(path: Path) -> CodeType:
    """Compile the file.

    Raises:
        ComponentError: When it is no Python, with the line.
    """
    try:
        return compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        raise ComponentError(f"module {path}:\n{text}", "a Python file", "mend that line") from error


class UserModule:
    """The file as a module. It is run from its source, so nothing is written beside it and its path may be any."""

    def __init__(self, path: Path) -> None:
        """Run the file.

        Raises:
            ComponentError: With the traceback, when it raises.
        """
        self.path = path
        self._module = ModuleType(NAME)
        self._module.__file__ = str(path)
        sys.modules[NAME] = self._module  # dataclasses look their module up there
        code = check_syntax(path)
        self._guarded("importing it", lambda: exec(code, self._module.__dict__))

    def function(self, name: str) -> Callable[..., Any] | None:
        """The function of that name, if the module has one."""
        found = getattr(self._module, name, None)
        return found if callable(found) else None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the function of that name.

        Raises:
            ComponentError: When there is none (the nearest names are offered), or it raises.
        """
        function = self.function(name)
        if function is None:
            known = [key for key, value in vars(self._module).items() if callable(value) and not key.startswith("_")]
            raise ComponentError(f"module {self.path}: no function {name}", f"def {name}(…)", nearest(name, known))
        return self._guarded(f"{name}()", lambda: function(*arguments))

    def quote(self, error: BaseException) -> str | None:
        """The traceback from the first line of the user's file on; None when the error never passed through it."""
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != str(self.path):
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip() if trace else None

    def _guarded(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (Exception, SystemExit) as error:
            shown = self.quote(error) or "".join(traceback.format_exception(error)).rstrip()
            fix = "mend the line shown above"
            if isinstance(error, ModuleNotFoundError):
                fix = f"install {error.name}, or keep everything in this one file: only it travels to where it runs"
            raise ComponentError(f"module {self.path}: {doing} raised\n{shown}", "a module that runs", fix) from error
