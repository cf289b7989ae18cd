from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Names
from tfopt.training.fine_tuning_inputs import FineTuningSettings


@dataclass(frozen=True)
class ClusteringSettings:
    """Parameters of the clustering.

    Attributes:
        clusters: Number of distinct values of a kernel; zero is one of them if zeros are preserved.
        initialization: Initial values of k-means: evenly spaced (linear), drawn far from each other
            (kmeans_plus_plus), or quantiles of the weights (density).
        keep_zeros: Preserve the zeros of pruned kernels.
        layers: Names of the layers to cluster; * matches any letters. When empty: every layer with a kernel.
    """

    clusters: Annotated[int, Between(2, 256)] = 16
    initialization: Literal["linear", "kmeans_plus_plus", "density"] = "kmeans_plus_plus"
    keep_zeros: bool = True
    layers: Annotated[tuple[str, ...], Names()] = ()


@dataclass(frozen=True)
class Settings(FineTuningSettings, ClusteringSettings):  # the fields of the last base come first
    """Parameters of clustering and fine-tuning.

    Attributes:
        seed: Seed of the initial values and of the order of the examples.
    """

    seed: int = 0
