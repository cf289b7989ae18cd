"""The outputs of a component."""

from tfopt.artifacts.base import Artifact


class Outputs(dict[str, Artifact]):
    """Artifacts by name; a notebook shows each."""

    def _repr_html_(self) -> str:
        return "".join(artifact._repr_html_() for artifact in self.values())
