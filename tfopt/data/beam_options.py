"""Beam's options with views that are made once.

Beam asks for a hundred views of the options while it builds and runs a pipeline, and defines and parses command line
options for each: a third of the time of a pipeline of few records.
"""

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions


class CachedOptions(PipelineOptions):  # type: ignore[misc]
    """Options of a pipeline whose views are made once; a view reads and sets the same values in any case."""

    def view_as(self, cls: type[PipelineOptions]) -> Any:
        """Return the view of a class of options."""
        views = self.__dict__.setdefault("_views", {})  # Beam allows no other attribute to be set
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> Any:
        """Return the state without views, whose values Beam copies for another process if there is an account."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_views"}
