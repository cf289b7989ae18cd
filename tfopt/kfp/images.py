"""The container image of each step: the project's own, or a reference from the user, which may be pinned."""

import re
from collections.abc import Sequence

import tfopt
from tfopt.errors import ComponentError

# The grammar of the OCI distribution specification: [host[:port]/]path[:tag][@digest]
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?/)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REFERENCE = rf"{_HOST}{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"

# The kinds of images, and for each the kinds whose packages it contains.
KINDS = {"tf": ("tf",), "beam": ("tf", "beam"), "tfx": ("tf", "beam", "tfx"), "gpu": ("tf", "beam", "gpu")}
CUDA_KINDS = ("gpu",)


class Images:
    """The image of each kind (a folder of ``deploy/images``).

    >>> images = Images(["registry.example/tfopt-{kind}:1.2", "gpu=registry.example/gpu:7"])
    >>> images.of("tf"), images.of("gpu"), images.of("registry.example/mine:3")
    ('registry.example/tfopt-tf:1.2', 'registry.example/gpu:7', 'registry.example/mine:3')
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
            if not re.fullmatch(REFERENCE, reference if equals else text.replace("{kind}", "tf")):
                expected = "an image reference: [registry/]name[:tag][@sha256:64 hexadecimal digits], in small letters"
                fix = f"write for example --image registry.example/tfopt-{{kind}}:{tfopt.__version__}"
                raise ComponentError(f"--image {text}", expected, fix)
            if equals:
                self._by_kind[kind] = reference
            else:
                self._default = text

    def of(self, image: str) -> str:
        """Return the reference for a kind of image; a reference is returned as it is."""
        if is_reference(image):
            return image
        return self._by_kind.get(image) or self._default.replace("{kind}", image)

    def is_shipped(self, image: str) -> bool:
        """Return True for a kind of this project, unless an image of the user replaces it, whose content is unknown."""
        return image in KINDS and image not in self._by_kind and "{kind}" in self._default

    @property
    def kinds(self) -> list[str]:
        """The names of all known kinds: those of this project, and those that have a reference."""
        return [*KINDS, *(kind for kind in self._by_kind if kind not in KINDS)]


def is_reference(image: str) -> bool:
    """Return True for a reference; unlike the name of a kind it has a registry, a folder, a tag or a digest."""
    return any(character in image for character in "/:@")
