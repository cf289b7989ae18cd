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
    """Floating-point operations for one example; a multiplication and an addition are two."""

    total: int
    by_op: dict[str, int]  # by TensorFlow op, the largest first
    not_counted: dict[str, int]  # number of nodes by op whose op or shapes are unknown
    in_loops: int = 0  # those of loops, in all iterations
    # those of layers that have channels to remove: their channels end in another kernel, or come from one
    prunable: int = 0


@dataclass(frozen=True)
class NodeCost:
    """The cost of a node."""

    node: str
    op: str
    flops: int | None  # floating-point operations; None if they are not counted
    bytes: int  # bytes read and written, of tensors with a known size
    output: list[int | None]  # shape of the first output
    in_loop: bool = False  # it is computed in each iteration of a loop


@dataclass(frozen=True)
class UnfoldableBatchNorm:
    """A batch norm that cannot be folded, by the name of its layer, or its first node in a graph."""

    batch_norm: str
    why: str


@dataclass(frozen=True)
class BatchNormCount:
    """The batch norms of a model."""

    found: int
    foldable: int  # number of batch norms that can be folded into a kernel
    stay: list[UnfoldableBatchNorm]  # the others


@dataclass(frozen=True)
class OpCoverage:
    """The part of a model that a set of ops covers."""

    flops: float | None  # share of the floating-point operations; None if there are none
    ops: float | None  # share of the nodes; None if there are none
    left_out: dict[str, int]  # number of nodes by op that is not in the set


@dataclass(frozen=True)
class UnalignedKernel:
    """A kernel with a number of channels that is not a multiple of 8."""

    node: str
    op: str
    reads: int  # number of input channels
    gives: int  # number of output channels


@dataclass(frozen=True)
class KernelSparsity:
    """The zeros of a kernel."""

    node: str
    size: int
    zeros: int
    two_of_four: bool  # True if at most two of every four neighbors along the input channels are not zero


@dataclass(frozen=True)
class Sparsity:
    """The zeros of all kernels."""

    zeros: int
    fraction: float  # share of the weights that are zero
    two_of_four: int  # number of kernels with 2:4 sparsity
    kernels: list[KernelSparsity]  # kernels with at least a tenth of zeros, those with the most zeros first


@dataclass(frozen=True)
class CostBudget:
    """Limits of a model; None for no limit."""

    mflops: float | None  # million floating-point operations for one example
    parameters: int | None


@dataclass(frozen=True)
class LighterBackbone:
    """A backbone that is lighter than the model."""

    name: str  # its name in `compare_backbones`
    parameters: int  # number of parameters without a head
    mflops: float  # million floating-point operations for an image of the model's size, without a head


@dataclass(frozen=True)
class LighterBackbones:
    """Lighter backbones for the task of the model."""

    task: str | None  # the task; None if the signature is not that of an image classifier
    reason: str | None  # why no task was recognized, or None
    budget: CostBudget
    model_fits: bool  # True if the model is within the limits
    fitting: list[LighterBackbone]  # backbones within the limits, those with the most operations first


@dataclass(frozen=True)
class NonFiniteWeight:
    """A constant with NaN or infinite values."""

    node: str
    size: int
    nan: int
    infinite: int  # number of infinite values; a mask may have them on purpose


@dataclass(frozen=True)
class OutsideOperator:
    """An operator that reaches outside of the model."""

    node: str  # its name; that of a node of a function is ``FUNCTION/NODE``
    op: str
    effect: str  # such as ``reads files``; see the keys of ``KINDS`` in tfopt/saved_models/effects.py


@dataclass(frozen=True)
class Advice:
    """A command that may make the model smaller or faster."""

    command: str  # the command; words in capitals are to be replaced
    why: str  # what was measured on the model, what gain was measured on others, and what the command needs


@dataclass(frozen=True)
class InspectionReport:
    """The content of ``inspection.json``."""

    schema_version: ClassVar[int] = 1
    model: str
    digest: str
    signature: str
    inputs: dict[str, str]  # dtype and shape of each input
    outputs: dict[str, str]  # dtype and shape of each output
    assumed: dict[str, str]  # the shapes of inputs that leave dimensions open, as they were assumed for the counts
    ops: dict[str, int]  # number of nodes by op, the most frequent first
    parameters: ParameterCount
    flops: FlopCount
    bytes_moved: int  # bytes that all nodes read and write
    busiest: list[NodeCost]  # the nodes with the most floating-point operations
    batch_norms: BatchNormCount
    quantizable: OpCoverage  # the part that integer kernels cover
    xnnpack: OpCoverage  # the part that XNNPACK covers
    channels: list[UnalignedKernel]  # kernels with channels that are not multiples of 8
    sparsity: Sparsity
    backbones: LighterBackbones
    loops: int = 0  # number of loops, as of recurrent layers
    non_finite: list[NonFiniteWeight] = field(default_factory=list)  # weights with NaN or infinite values
    # operators that reach outside of the model; other components refuse it unless ``trust_model_code``
    outside: list[OutsideOperator] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)  # the next commands, those with the largest expected gain first
