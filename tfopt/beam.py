"""The Beam pipeline of a component, run with whatever arguments the engine was given."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

_ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("beam_pipeline_args", default=())


@contextlib.contextmanager
def arguments(given: Sequence[str]) -> Iterator[None]:
    """Give every `pipeline` opened inside these runner arguments (``--runner=…``, ``--direct_num_workers=…``)."""
    token = _ARGUMENTS.set(tuple(given))
    try:
        yield
    finally:
        _ARGUMENTS.reset(token)


@contextlib.contextmanager
def pipeline() -> Iterator[Any]:
    """Yield a ``beam.Pipeline``; it runs to its end when the block closes."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    with beam.Pipeline(options=PipelineOptions(list(_ARGUMENTS.get()))) as opened:
        yield opened
