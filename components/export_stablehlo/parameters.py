from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between
from tfopt.conversion.parameters import Conversion


@dataclass(frozen=True, kw_only=True)
class StableHLOConversion(Conversion):
    """Conversion to StableHLO.

    Attributes:
        batch_size: Records in a call of the file, if the batch size of the model is open.
    """

    batch_size: Annotated[int, Between(1)] = 1
