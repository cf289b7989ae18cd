"""Optimization profiles: smallest, usual and largest shape of each input of an engine."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]  # smallest, usual, largest
Specs = Mapping[str, TensorSpec]

FORM = re.compile(r"(?P<name>[^=\s]+)=(?P<shapes>\d+(x\d+)*(:\d+(x\d+)*){0,2})")
SYNTAX = "NAME=MIN:OPT:MAX in sizes such as 1x224x224x3, or NAME=SIZES for all three"


@dataclass(frozen=True)
class Profile:
    """A range of shapes for every input, by name."""

    ranges: Mapping[str, Range]

    def contains(self, shapes: Mapping[str, Shape]) -> bool:
        """Return True if these input shapes are in the ranges."""
        return all(
            len(shape) == len(self.ranges[name][0])
            and all(
                low <= size <= high
                for low, size, high in zip(self.ranges[name][0], shape, self.ranges[name][2], strict=True)
            )
            for name, shape in shapes.items()
        )

    def largest_batch(self, names: Iterable[str]) -> int:
        """Return the largest batch size of these inputs."""
        return min((self.ranges[name][2][0] for name in names), default=1)

    def __str__(self) -> str:
        """Format like the parameter `shapes`."""
        return " ".join(f"{name}={':'.join(map(_sizes, shapes))}" for name, shapes in self.ranges.items())


def parse_shapes(texts: Sequence[str]) -> dict[str, Range]:
    """Parse the parameter `shapes`.

    >>> parse_shapes(["ids=1x8:4x32:16x128"])
    {'ids': ((1, 8), (4, 32), (16, 128))}

    Raises:
        ComponentError: If a text has no shapes, shapes of different rank, sizes that decrease, or an input twice.
    """
    ranges: dict[str, Range] = {}
    for text in texts:
        match = FORM.fullmatch(text)
        if not match:
            raise ComponentError(repr(text), SYNTAX, "write ids=1x8:4x32:16x128")
        shapes = [tuple(map(int, sizes.split("x"))) for sizes in match["shapes"].split(":")]
        if len(shapes) == 2:
            raise ComponentError(f"{text!r}: 2 shapes", SYNTAX, "give three, or one for all")
        least, usual, most = shapes if len(shapes) == 3 else shapes * 3
        if not len(least) == len(usual) == len(most):
            received = f"{text!r}: shapes of different rank"
            raise ComponentError(received, "as many sizes in each", "add the missing sizes")
        if not all(0 < low <= middle <= high for low, middle, high in zip(least, usual, most, strict=True)):
            raise ComponentError(f"{text!r}: sizes that decrease", "0 < MIN <= OPT <= MAX for every size", "sort them")
        if match["name"] in ranges:
            raise ComponentError(f"{match['name']!r} twice", "one range for each input", "remove one")
        ranges[match["name"]] = (least, usual, most)
    return ranges


def derive_profile(
    specs: Specs, requested: Mapping[str, Range], stored: Specs | None, *, usual_batch: int, largest_batch: int
) -> Profile:
    """Return the profile of a signature from the requested shapes, the batch sizes and the examples.

    ``stored`` are the features of the examples, None without examples.

    Raises:
        ComponentError: If a requested shape does not fit its input or excludes a batch size of 1, or the range of a
            dynamic size is unknown.
    """
    for name in requested:
        if name not in specs:
            raise ComponentError(f"shapes: no input {name!r}", f"inputs {', '.join(specs)}", nearest(name, specs))
    ranges = {}
    for name, spec in specs.items():
        if name in requested:
            _check(name, spec, requested[name])
            ranges[name] = requested[name]
        else:
            sizes = _sizes_after_batch(name, spec, stored)
            dynamic = spec.shape[:1] == (None,)
            batches = (1, usual_batch, largest_batch) if dynamic else [size or 1 for size in spec.shape[:1] * 3]
            least, usual, most = ((batch, *sizes) for batch in batches) if spec.shape else ((), (), ())
            ranges[name] = least, usual, most
    return Profile(ranges)


def _check(name: str, spec: TensorSpec, shapes: Range) -> None:
    fits = not spec.ranked or all(
        len(shape) == len(spec.shape)
        and all(fixed in (None, size) for fixed, size in zip(spec.shape, shape, strict=True))
        for shape in shapes
    )
    text = ":".join(map(_sizes, shapes))
    if not fits:
        raise ComponentError(f"shapes: {name}={text}", f"{spec}", "do not change the sizes that the model fixes")
    if spec.shape[:1] == (None,) and shapes[0][0] != 1:
        received = f"shapes: {name}={text}, which excludes single records"
        expected = "a smallest batch size of 1, which evaluate and benchmark also use"
        raise ComponentError(received, expected, f"start it with {_sizes((1, *shapes[0][1:]))}")


def _sizes_after_batch(name: str, spec: TensorSpec, stored: Specs | None) -> Shape:
    """Return the sizes after the batch size; a dynamic one is taken from the examples."""
    examples = ((batch, *(size or open for size in spec.shape[1:])) for batch, open in ((1, 1), (8, 64), (32, 128)))
    example = f"{name}={':'.join(map(_sizes, examples))}"
    if not spec.ranked:
        expected = "known sizes, which TensorRT selects kernels for"
        raise ComponentError(f"input {name!r} of unknown rank", expected, f"pass shapes such as {example}")
    unknown = [size for size in spec.shape[1:] if size is None]
    if len(unknown) > 1 or (unknown and (stored is None or name not in stored)):
        received = f"input {name!r} is {spec}, with dynamic sizes besides the batch"
        fix = f"pass shapes such as {example}" + ("" if len(unknown) > 1 else ", or examples, which have fixed sizes")
        raise ComponentError(received, "their range, which TensorRT selects kernels for", fix)
    if not unknown:
        return tuple(size for size in spec.shape[1:] if size)
    assert stored is not None
    fixed = prod(size for size in spec.shape[1:] if size)
    return tuple(size or (stored[name].shape[1] or 0) // fixed for size in spec.shape[1:])


def _sizes(shape: Shape) -> str:
    return "x".join(map(str, shape))


def with_usual_sizes(specs: Specs, profile: Profile) -> dict[str, TensorSpec]:
    """Return the signature with the usual sizes instead of dynamic ones; the batch size stays dynamic."""
    sized = {}
    for name, spec in specs.items():
        usual = profile.ranges[name][1]
        batch = (None,) if not spec.ranked or spec.shape[:1] == (None,) else usual[:1]
        sized[name] = TensorSpec(spec.dtype, (*batch, *usual[1:]) if usual else ())
    return sized
