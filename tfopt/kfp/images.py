"""The container image of each step: the project's own, or a reference from the user, which may be pinned."""

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

    def __init__(self, references: Sequence[str] = ()) -> None:
        """Parse references.

        Args:
            references: ``REF`` for all kinds, with ``{kind}`` in place of a kind's name, or ``KIND=REF`` for one kind;
                later ones override earlier ones. ``@sha256:…`` pins a reference. The key of Kubeflow's cache contains
                the reference, so a pinned one binds the cache to the image's content.

        Raises:
            ComponentError: If one is not an image reference.
        """
        self._default, self._by_kind = f"tfopt-{{kind}}:{tfopt.__version__}", {}
        for text in references:
            kind, equals, reference = text.partition("=")
            _check(reference if equals else text.replace("{kind}", "tf"), text)
            if equals:
                self._by_kind[kind] = reference
            else:
                self._default = text

    def of(self, kind: str) -> str:
        """Return the reference for a kind of image."""
        return self._by_kind.get(kind) or self._default.replace("{kind}", kind)


def _check(reference: str, option: str) -> None:
    if not _REFERENCE.fullmatch(reference):
        raise ComponentError(
            f"--image {option}",
            "an image reference: [registry/]name[:tag][@sha256:64 hexadecimal digits], in small letters",
            f"write for example --image registry.example/tfopt-{{kind}}:{tfopt.__version__}",
        )
