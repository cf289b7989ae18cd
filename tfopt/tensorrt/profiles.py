"""The shapes an engine is built for: the least, the most usual and the largest of each input."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError, nearest

Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]  # least, most usual, largest
Specs = Mapping[str, TensorSpec]

FORM = re.compile(r"(?P<name>[^=\s]+)=(?P<shapes>\d+(x\d+)*(:\d+(x\d+)*){0,2})")
WANTED = "NAME=MIN:OPT:MAX in sizes such as 1x224x224x3, or NAME=SIZES for all three"


@dataclass(frozen=True)
class Profile:
    """One range of shapes for every input.

    Attributes:
        ranges: By input name.
    """

    ranges: Mapping[str, Range]

    def takes(self, shapes: Mapping[str, Shape]) -> bool:
        """Whether inputs of these shapes lie in it."""
        return all(
            len(shape) == len(self.ranges[name][0])
            and all(
                low <= size <= high
                for low, size, high in zip(self.ranges[name][0], shape, self.ranges[name][2], strict=True)
            )
            for name, shape in shapes.items()
        )

    def largest_batch(self, names: Iterable[str]) -> int:
        """How many records of these inputs it takes at once."""
        return min((self.ranges[name][2][0] for name in names), default=1)

    def __str__(self) -> str:
        """Print as the parameter `shapes` has it."""
        return " ".join(f"{name}={':'.join(map(_sizes, found))}" for name, found in self.ranges.items())


def read_shapes(texts: Sequence[str]) -> dict[str, Range]:
    """Read what the parameter `shapes` says.

    >>> read_shapes(["ids=1x8:4x32:16x128"])
    {'ids': ((1, 8), (4, 32), (16, 128))}

    Raises:
        ComponentError: When a text says no shapes, shapes of several ranks, a least above a largest, or an input twice.
    """
    found: dict[str, Range] = {}
    for text in texts:
        matched = FORM.fullmatch(text)
        if not matched:
            raise ComponentError(repr(text), WANTED, "write ids=1x8:4x32:16x128")
        shapes = [tuple(map(int, sizes.split("x"))) for sizes in matched["shapes"].split(":")]
        if len(shapes) == 2:
            raise ComponentError(f"{text!r}: 2 shapes", WANTED, "give three, or one for all")
        least, usual, most = shapes if len(shapes) == 3 else shapes * 3
        if not len(least) == len(usual) == len(most):
            raise ComponentError(
                f"{text!r}: shapes of different rank", "as many sizes in each", "add the missing sizes"
            )
        if not all(0 < low <= middle <= high for low, middle, high in zip(least, usual, most, strict=True)):
            raise ComponentError(
                f"{text!r}: sizes that do not grow", "0 < MIN <= OPT <= MAX for every size", "sort them"
            )
        if matched["name"] in found:
            raise ComponentError(f"{matched['name']!r} twice", "one range for each input", "leave one out")
        found[matched["name"]] = (least, usual, most)
    return found


def derive(
    specs: Specs, given: Mapping[str, Range], stored: Specs | None, *, usual_batch: int, largest_batch: int
) -> Profile:
    """Return the profile of a signature: as given, else from batch sizes and the examples' sizes.

    Args:
        specs: The model's inputs; their first size is the batch, which is free where it is None.
        given: What `read_shapes` read.
        stored: The features of the examples, as `tfopt.data.batches.feature_specs` gives them; None without examples.
        usual_batch: The batch size to be fastest at.
        largest_batch: The largest one.

    Raises:
        ComponentError: When a given shape does not fit its input, no batch of one would be taken, or nothing says how
            large an open size may be.
    """
    for name in given:
        if name not in specs:
            raise ComponentError(f"shapes: no input {name!r}", f"inputs {', '.join(specs)}", nearest(name, specs))
    ranges = {}
    for name, spec in specs.items():
        if name in given:
            _check(name, spec, given[name])
            ranges[name] = given[name]
        else:
            rest = _rest(name, spec, stored)
            free = spec.shape[:1] == (None,)
            batches = (1, usual_batch, largest_batch) if free else [size or 1 for size in spec.shape[:1] * 3]
            least, usual, most = ((batch, *rest) for batch in batches) if spec.shape else ((), (), ())
            ranges[name] = least, usual, most
    return Profile(ranges)


def _check(name: str, spec: TensorSpec, found: Range) -> None:
    fits = not spec.ranked or all(
        len(shape) == len(spec.shape)
        and all(want in (None, size) for want, size in zip(spec.shape, shape, strict=True))
        for shape in found
    )
    said = ":".join(map(_sizes, found))
    if not fits:
        raise ComponentError(f"shapes: {name}={said}", f"{spec}", "give the sizes that the model fixes as they are")
    if spec.shape[:1] == (None,) and found[0][0] != 1:
        raise ComponentError(
            f"shapes: {name}={said}, which takes no single record",
            "a least batch of 1, with which evaluate and benchmark call too",
            f"begin it with {_sizes((1, *found[0][1:]))}",
        )


def _rest(name: str, spec: TensorSpec, stored: Specs | None) -> Shape:
    """The sizes behind the batch, the open one as the examples have it."""
    examples = ((batch, *(size or open for size in spec.shape[1:])) for batch, open in ((1, 1), (8, 64), (32, 128)))
    example = f"{name}={':'.join(map(_sizes, examples))}"
    if not spec.ranked:
        raise ComponentError(
            f"input {name!r} of unknown rank",
            "known sizes, for which kernels are chosen",
            f"pass shapes such as {example}",
        )
    unknown = [size for size in spec.shape[1:] if size is None]
    if len(unknown) > 1 or (unknown and (stored is None or name not in stored)):
        raise ComponentError(
            f"input {name!r} is {spec}, of open sizes besides the batch",
            "how large they may be, for which kernels are chosen",
            f"pass shapes such as {example}" + ("" if len(unknown) > 1 else ", or examples, which have one size"),
        )
    if not unknown:
        return tuple(size for size in spec.shape[1:] if size)
    assert stored is not None
    known = prod(size for size in spec.shape[1:] if size)
    return tuple(size or (stored[name].shape[1] or 0) // known for size in spec.shape[1:])


def _sizes(shape: Shape) -> str:
    return "x".join(map(str, shape))


def sized(specs: Specs, profile: Profile) -> dict[str, TensorSpec]:
    """The signature with the usual sizes in the place of open ones; a free batch stays free."""
    found = {}
    for name, spec in specs.items():
        usual = profile.ranges[name][1]
        batch = (None,) if not spec.ranked or spec.shape[:1] == (None,) else usual[:1]
        found[name] = TensorSpec(spec.dtype, (*batch, *usual[1:]) if usual else ())
    return found
