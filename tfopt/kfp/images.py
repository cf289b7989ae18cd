"""Which image each step runs in: the project's own name and version, or what the user gives, pinned if wanted."""

import re
from collections.abc import Sequence

import tfopt
from tfopt.errors import ComponentError

# The grammar of the OCI distribution specification: [host[:port]/]path[:tag][@digest]
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?/)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(rf"{_HOST}{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?")


class Images:
    """The image of each kind (a folder of ``deploy/images``).

    >>> images = Images(["registry.example/tfopt-{kind}:1.2", "tensorrt=registry.example/gpu:7"])
    >>> images.of("tf"), images.of("tensorrt")
    ('registry.example/tfopt-tf:1.2', 'registry.example/gpu:7')
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        """Read references.

        Args:
            given: ``REF`` for every kind, with ``{kind}`` where its name belongs, or ``KIND=REF`` for one; later ones
                win. With ``@sha256:…`` a reference is pinned, and Kubeflow's cache, whose key holds the image, is then
                bound to the content.

        Raises:
            ComponentError: When one is no image reference.
        """
        self._every, self._one = f"tfopt-{{kind}}:{tfopt.__version__}", {}
        for text in given:
            kind, equals, reference = text.partition("=")
            _check(reference if equals else text.replace("{kind}", "tf"), text)
            if equals:
                self._one[kind] = reference
            else:
                self._every = text

    def of(self, kind: str) -> str:
        """The reference for a kind of image."""
        return self._one.get(kind) or self._every.replace("{kind}", kind)


def _check(reference: str, given: str) -> None:
    if not _REFERENCE.fullmatch(reference):
        raise ComponentError(
            f"--image {given}",
            "an image reference: [registry/]name[:tag][@sha256:64 hexadecimal digits], in small letters",
            f"write for example --image registry.example/tfopt-{{kind}}:{tfopt.__version__}",
        )
