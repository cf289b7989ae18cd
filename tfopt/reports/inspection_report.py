"""The content of ``inspection.json``: operations, parameters, costs and obstacles to optimizations of a model."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class ParameterCount:
    """Number and bytes of the values of all floating-point constants with more than one value."""

    count: int
    bytes: int


@dataclass(frozen=True)
class FlopCount:
    """Floating-point operations for one example; a multiplication and an addition are two.

    Attributes:
        by_op: By TensorFlow op, the largest first.
        not_counted: Number of nodes by op whose op or shapes are unknown.
        in_loops: Those of loops, in all iterations.
        prunable: Those of layers that have channels to remove: their channels end in another kernel, or come from one.
    """

    total: int
    by_op: dict[str, int]
    not_counted: dict[str, int]
    in_loops: int = 0
    prunable: int = 0


@dataclass(frozen=True)
class NodeCost:
    """The cost of a node.

    Attributes:
        flops: Floating-point operations; None if they are not counted.
        bytes: Bytes read and written, of tensors with a known size.
        output: Shape of the first output.
        in_loop: It is computed in each iteration of a loop.
    """

    node: str
    op: str
    flops: int | None
    bytes: int
    output: list[int | None]
    in_loop: bool = False


@dataclass(frozen=True)
class UnfoldableBatchNorm:
    """A batch norm that cannot be folded, by the name of its first node."""

    batch_norm: str
    why: str


@dataclass(frozen=True)
class BatchNormCount:
    """The batch norms of a model.

    Attributes:
        foldable: Number of batch norms that can be folded into a kernel.
        stay: The others.
    """

    found: int
    foldable: int
    stay: list[UnfoldableBatchNorm]


@dataclass(frozen=True)
class OpCoverage:
    """The part of a model that a set of ops covers.

    Attributes:
        flops: Share of the floating-point operations; None if there are none.
        ops: Share of the nodes; None if there are none.
        left_out: Number of nodes by op that is not in the set.
    """

    flops: float | None
    ops: float | None
    left_out: dict[str, int]


@dataclass(frozen=True)
class UnalignedKernel:
    """A kernel with a number of channels that is not a multiple of 8.

    Attributes:
        reads: Number of input channels.
        gives: Number of output channels.
    """

    node: str
    op: str
    reads: int
    gives: int


@dataclass(frozen=True)
class KernelSparsity:
    """The zeros of a kernel.

    Attributes:
        two_of_four: True if at most two of every four neighbors along the input channels are not zero.
    """

    node: str
    size: int
    zeros: int
    two_of_four: bool


@dataclass(frozen=True)
class Sparsity:
    """The zeros of all kernels.

    Attributes:
        fraction: Share of the weights that are zero.
        two_of_four: Number of kernels with 2:4 sparsity.
        kernels: Kernels with at least a tenth of zeros, those with the most zeros first.
    """

    zeros: int
    fraction: float
    two_of_four: int
    kernels: list[KernelSparsity]


@dataclass(frozen=True)
class CostBudget:
    """Limits of a model; None for no limit.

    Attributes:
        mflops: Million floating-point operations for one example.
    """

    mflops: float | None
    parameters: int | None


@dataclass(frozen=True)
class LighterBackbone:
    """A backbone that is lighter than the model.

    Attributes:
        name: Its name in `compare_backbones`.
        parameters: Number of parameters without a head.
        mflops: Million floating-point operations for an image of the model's size, without a head.
    """

    name: str
    parameters: int
    mflops: float


@dataclass(frozen=True)
class LighterBackbones:
    """Lighter backbones for the task of the model.

    Attributes:
        task: The task; None if the signature is not that of an image classifier.
        reason: Why no task was recognized, or None.
        model_fits: True if the model is within the limits.
        fitting: Backbones within the limits, those with the most operations first.
    """

    task: str | None
    reason: str | None
    budget: CostBudget
    model_fits: bool
    fitting: list[LighterBackbone]


@dataclass(frozen=True)
class NonFiniteWeight:
    """A constant with NaN or infinite values.

    Attributes:
        infinite: Number of infinite values; a mask may have them on purpose.
    """

    node: str
    size: int
    nan: int
    infinite: int


@dataclass(frozen=True)
class OutsideOperator:
    """An operator that reaches outside of the model.

    Attributes:
        node: Its name; that of a node of a function is ``FUNCTION/NODE``.
        effect: ``reads files``, ``writes files``, ``runs Python`` or ``opens connections``.
    """

    node: str
    op: str
    effect: str


@dataclass(frozen=True)
class Advice:
    """A command that may make the model smaller or faster.

    Attributes:
        command: The command; words in capitals are to be replaced.
        why: What was measured on the model, what gain was measured on others, and what the command needs.
    """

    command: str
    why: str


@dataclass(frozen=True)
class InspectionReport:
    """The content of ``inspection.json``.

    Attributes:
        inputs: Dtype and shape of each input.
        outputs: Dtype and shape of each output.
        assumed: The shapes of inputs that leave dimensions open, as they were assumed for the counts.
        ops: Number of nodes by op, the most frequent first.
        loops: Number of loops, as of recurrent layers.
        bytes_moved: Bytes that all nodes read and write.
        busiest: The nodes with the most floating-point operations.
        quantizable: The part that integer kernels cover.
        xnnpack: The part that XNNPACK covers.
        channels: Kernels with channels that are not multiples of 8.
        non_finite: Weights with NaN or infinite values.
        outside: Operators that reach outside of the model; other components refuse it unless ``trust_model_code``.
        advice: The next commands, those with the largest expected gain first.
    """

    schema_version: ClassVar[int] = 1
    model: str
    digest: str
    signature: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    assumed: dict[str, str]
    ops: dict[str, int]
    parameters: ParameterCount
    flops: FlopCount
    bytes_moved: int
    busiest: list[NodeCost]
    batch_norms: BatchNormCount
    quantizable: OpCoverage
    xnnpack: OpCoverage
    channels: list[UnalignedKernel]
    sparsity: Sparsity
    backbones: LighterBackbones
    loops: int = 0
    non_finite: list[NonFiniteWeight] = field(default_factory=list)
    outside: list[OutsideOperator] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
