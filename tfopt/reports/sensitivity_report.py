"""The content of ``sensitivities.json``: the loss that each layer of a model adds in each precision."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Loss:
    """The change of the outputs if one tensor is rounded, as a mean over the records."""

    # of the outputs from those of the float model, summed over the outputs: the Kullback-Leibler divergence of
    # probabilities, or else the mean squared error divided by the variance
    divergence: float
    task: float | None = None  # increase of the loss against the labels; None without labels


@dataclass(frozen=True)
class LayerSensitivity:
    """The losses of one layer: an operation of the frozen graph with a kernel, after batch norms were folded."""

    layer: str  # name of the node
    op: str
    weights: int  # number of weights
    # The shape of the distribution of the weights (`tfopt.conversion.mixes.sensitivity_table.Kernel`): with their
    # number, it identifies the layer in a converted file, whatever its name and layout are there.
    spread: float
    peak: float
    rounded_weights: dict[str, Loss] = field(default_factory=dict)  # by precision of the weights alone
    rounded_inputs: dict[str, Loss] = field(default_factory=dict)  # by precision of the activation that it reads alone


@dataclass(frozen=True)
class MixedWeights:
    """A mix of precisions of the weights: the sum of the divergences of its layers, and what was measured."""

    predicted: float
    divergence: float
    degradation: float  # share of records that change their class, or 1 - correlation without classes


@dataclass(frozen=True)
class SensitivityReport:
    """The content of ``sensitivities.json``."""

    schema_version: ClassVar[int] = 1
    model: str
    digest: str
    examples: str  # digest of the examples
    signature: str
    inputs: str  # description of the records
    records: int
    divergence: str  # what the divergence is
    task: str | None  # what the loss against the labels is; None without labels
    seconds: float  # of this run
    reused: int  # losses that an earlier, unfinished run had measured
    layers: list[LayerSensitivity]  # in the order of the graph
    mixes: list[MixedWeights]  # by sum, the smallest one first
    not_measured: dict[str, str]  # layers, and precisions of layers, with the reason
