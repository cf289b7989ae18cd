"""Parameters of `optimize_graph`."""

from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between, Names, Reads
from tfopt.components.optimize_graph.pass_names import read_passes


@dataclass(frozen=True)
class Optimization:
    """Parameters of an optimization.

    Attributes:
        passes: Presets, laws and ``grappler:NAME``, in the order in which they are tried; ``without:NAME`` removes one
            from a preset.
        tolerance: Undo a pass if an output differs by more than this fraction of its range. The default is 0.0001, or
            0.01 if the graph computes in float16, or 0.05 if it computes in bfloat16.
        fast_math: Speed before IEEE 754: do not compare NaN, infinities, zeros of both signs, denormals and extremes,
            and run laws that hold for finite numbers only.
        explain: Pass the model through unchanged; the report describes what each pass would do.
        inputs: For a frozen graph: the nodes that are fed, placeholders or inner nodes, at which the graph is cut. They
            become the inputs of the signature. ``NODE:1`` is another output, ``NODE=?x28x28x1`` adds a shape where the
            graph has none. Empty if the outputs are constants.
        outputs: For a frozen graph: the nodes that are fetched.
        feature_signature: Key of a further signature that takes the features which the signature parses from records;
            none by default. Servers and formats without records can use it.
        frozen_graph: Also write the optimized graph as ``frozen.pb``; the model card lists the names of its inputs and
            outputs under ``frozen_graph``.
    """

    passes: Annotated[tuple[str, ...], Reads(read_passes, ("inference",)), Names()] = ("inference",)
    tolerance: Annotated[float, Between(0, 1)] | None = None
    fast_math: bool = False
    explain: bool = False
    inputs: Annotated[tuple[str, ...], Names()] = ()
    outputs: Annotated[tuple[str, ...], Names()] = ()
    feature_signature: str = ""
    frozen_graph: bool = False
