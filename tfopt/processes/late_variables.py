"""Environment variables that libraries read when they need them, and not when they are imported.

A fork of a process that has imported TensorFlow can have its own values of them. All others may have been read by the
import, so that another value needs another process.
"""

import os
import re
import tempfile
from collections.abc import Mapping

# TensorFlow parses the flags of XLA before it first compiles or places an operation (parse_flags_from_env.cc).
READ_LATE = re.compile(r"AWS_\w+|COLUMNS|LINES|PATH|TF_FORCE_GPU_ALLOW_GROWTH|TF_XLA_FLAGS|TFOPT_\w+|TMPDIR")


def late_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a fork can set.

    >>> late_variables({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2", "TF_ENABLE_ONEDNN_OPTS": "0"})
    {'TF_XLA_FLAGS': '--tf_xla_auto_jit=2'}
    """
    return {name: value for name, value in variables.items() if READ_LATE.fullmatch(name)}


def replace_late_variables(variables: Mapping[str, str]) -> None:
    """Replace these variables of this process, a fork, by the given ones."""
    for name in late_variables(os.environ):
        del os.environ[name]
    os.environ.update(variables)
    tempfile.tempdir = None  # TMPDIR may have been read
