"""tfopt: TFX and Kubeflow components that make TensorFlow models smaller and faster, and prove it.

Drop the first word of an import and you have the path: ``tfopt.components.train.component`` is
``components/train/component.py``. The two folders are links in this package because that is the one layout which
pip, mypy, pytest and doctest all understand without configuration (``docs/adr/0001-layout.md``).
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> type:
    """Return the TFX artifact type called ``tfopt.NAME``, for TFX's container entry point, which imports it by name."""
    if name[0].isupper():
        from tfopt.tfx import TYPES

        for found in TYPES.values():
            if f"tfopt.{name}" == found.TYPE_NAME:
                return found  # type: ignore[no-any-return]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
