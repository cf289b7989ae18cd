"""Parameters of `check_drift`."""

from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between


@dataclass(frozen=True, kw_only=True)
class DriftTest:
    """The compared samples, and the changes that matter: those whose whole interval is beyond a limit.

    Attributes:
        limit: Largest number of requests that are read, the first ones of the recording, and of records that are drawn
            from the reference.
        min_records: Smallest number of records in each sample; with fewer only the largest changes could be found.
        split: The split of the reference: the one that the model was trained and calibrated on.
        seed: Seed of the draw from the reference.
        max_unknown: Largest additional share of missing values, and of categories that the reference does not have, in
            an input.
        max_shift: Largest change of the share of a class in the answers, of the share of records with the same value in
            an input, and of the distribution of an output that is a number (Kolmogorov and Smirnov's distance).
        max_saturation: Largest additional share of the values of an activation at the ends of its 8-bit range.
        max_disagreement: Largest additional share of records to which model and parent give different answers.
    """

    limit: Annotated[int, Between(1)] = 2000
    min_records: Annotated[int, Between(2)] = 100
    split: str = "train"
    seed: int = 0
    max_unknown: Annotated[float, Between(0, 1)] = 0.01
    max_shift: Annotated[float, Between(0, 1)] = 0.1
    max_saturation: Annotated[float, Between(0, 1)] = 0.01
    max_disagreement: Annotated[float, Between(0, 1)] = 0.01
