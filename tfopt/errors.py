"""The exceptions that users see: what was received, what was expected, how to fix it."""


class ComponentError(Exception):
    """A component rejected its input or failed: what was received, what was expected, how to fix it.

    >>> print(ComponentError("sparsity=1.7", "a number from 0 to 1", "pass sparsity=0.5"))
    received: sparsity=1.7
    expected: a number from 0 to 1
    how to fix: pass sparsity=0.5
    """

    exit_code = 1  # of a command that ends with it

    def __init__(self, received: str, expected: str, fix: str) -> None:
        """Store the three parts as attributes."""
        super().__init__(received, expected, fix)
        self.received, self.expected, self.fix = received, expected, fix

    def __str__(self) -> str:
        """Return the three parts on a line each."""
        return f"received: {self.received}\nexpected: {self.expected}\nhow to fix: {self.fix}"


class AttemptError(ComponentError):
    """Not due to the model: a crashed or slow child process, or no GPU. Another attempt may succeed."""


class ExamplesError(ComponentError):
    """Examples cannot be read or do not fit a model: every step that reads them would fail for the same reason."""


class MachineError(ComponentError):
    """The machine lacks disk space, memory or a package; the error is unrelated to the model."""
