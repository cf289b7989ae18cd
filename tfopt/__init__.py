"""tfopt: TFX and Kubeflow components that make TensorFlow models smaller and faster, and prove it.

Drop the first word of an import and you have the path: ``tfopt.components.train.component`` is
``components/train/component.py``. The two folders are links in this package because that is the one layout which
pip, mypy, pytest and doctest all understand without configuration (``docs/adr/0001-layout.md``).
"""

__version__ = "0.1.0"
