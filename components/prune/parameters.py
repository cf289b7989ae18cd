from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Names, Reads
from tfopt.errors import ComponentError
from tfopt.training.fine_tuning_inputs import FineTuningSettings, TeacherSettings


@dataclass(frozen=True)
class Pattern:
    """Positions that zeros may have in a kernel."""

    name: str  # ``magnitude``, ``n_m`` or ``block``
    ratio: tuple[int, int] = (2, 4)  # N and M: N of every M adjacent weights remain
    block: tuple[int, int] = (1, 4)  # rows (input channels) and columns (output channels) that are pruned together


def parse_ratio(text: str) -> tuple[int, int]:
    """Parse ``2:4``: how many weights remain of how many adjacent ones; raise ComponentError for other texts.

    >>> parse_ratio("2:4")
    (2, 4)
    """
    n, _, m = text.partition(":")
    if not (n.isdecimal() and m.isdecimal() and 0 < int(n) < int(m)):
        raise ComponentError(f"{text!r}", "N:M, keep N of every M weights, N smaller", "write 2:4")
    return int(n), int(m)


def parse_block(text: str) -> tuple[int, int]:
    """Parse ``1x4``: input channels and output channels of a block; raise ComponentError for other texts.

    >>> parse_block("1x4")
    (1, 4)
    """
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) * int(width) > 1):
        raise ComponentError(f"{text!r}", "HEIGHTxWIDTH, more than one weight", "write 1x4")
    return int(height), int(width)


@dataclass(frozen=True)
class PruningSettings:
    """Parameters of the pruning.

    Attributes:
        sparsity: Fraction of each kernel that becomes zero; for channel, the fraction of ``measure`` that is removed.
            Not used by n_m, whose ratio defines it.
        pattern: Pruned weights: the smallest ones (magnitude), all but the N largest of every M input channels (n_m),
            the weakest blocks of a matrix (block), or the least important channels, which are removed (channel).
        ratio: For n_m: how many of how many adjacent weights remain.
        block: For block: input channels and output channels of a block.
        measure: For channel: what is reduced: the parameters, the FLOPs of a record, or the latency on this machine,
            which is measured during the search.
        importance: For channel: rank channels by the norm of their filters (l1, l2), the scale of their batch norms, or
            the first-order Taylor expansion of the loss on the examples (taylor). Without a module, the loss is
            computed from the model's outputs alone.
        scope: For channel: remove the least important channels of the whole model (global), or the same fraction of
            every group.
        latency_runtime: For latency: the runtime that is measured, TensorFlow (saved_model) or LiteRT with one thread
            (tflite), in floats.
        latency_batch_size: For latency: records in a call.
        latency_minutes: For latency in global scope: time for the measurement of the groups of channels. A group that
            was not measured until then does not change.
        checkpoints: For latency in global scope: a folder that outlives the step (a mounted volume, or an address such
            as ``gs://BUCKET/FOLDER``) where each measured latency is saved. They are reused for a model with the same
            layers, whatever its weights, on a machine with the same CPU and versions. When not given, nothing is saved.
        multiple: For channel: numbers of channels are multiples of this; groups that are not larger do not change. A
            head of attention counts as many channels as its values have.
        schedule: Sparsity during fine-tuning: constant from the first step, or polynomial growth in the first half.
        layers: Names of the layers to prune; * matches any letters. When empty: every layer with a kernel.
    """

    sparsity: Annotated[float, Between(0, 0.99)] = 0.5
    pattern: Literal["magnitude", "n_m", "block", "channel"] = "magnitude"
    ratio: Annotated[str, Reads(parse_ratio, "2:4")] = "2:4"
    block: Annotated[str, Reads(parse_block, "1x4")] = "1x4"
    measure: Literal["parameters", "flops", "latency"] = "flops"
    importance: Literal["l1", "l2", "batch_norm", "taylor"] = "l2"
    scope: Literal["group", "global"] = "global"
    latency_runtime: Literal["saved_model", "tflite"] = "saved_model"
    latency_batch_size: Annotated[int, Between(1)] = 1
    latency_minutes: Annotated[float, Between(0)] = 10.0
    checkpoints: str | None = None
    multiple: Annotated[int, Between(1, None)] = 8
    schedule: Literal["constant", "polynomial"] = "polynomial"
    layers: Annotated[tuple[str, ...], Names()] = ()

    @property
    def parsed_pattern(self) -> Pattern:
        """Return the pattern of zeros with its parsed ratio and block."""
        return Pattern(self.pattern, parse_ratio(self.ratio), parse_block(self.block))


@dataclass(frozen=True)
class Settings(TeacherSettings, FineTuningSettings, PruningSettings):  # the fields of the last base come first
    """Parameters of pruning and fine-tuning.

    Attributes:
        learning_rate: Learning rate that replaces the one of the module's optimizer.
        seed: Seed of the order of the examples.
    """

    epochs: Annotated[int, Between(1, None)] = 10
    learning_rate: Annotated[float, Between(0, None)] | None = None
    seed: int = 0
