"""Where learning begins when only the place is known to which earlier runs pushed."""

import logging

from tfopt.artifacts import KerasModel
from tfopt.model_store import last_run as kept

log = logging.getLogger("tfopt")


def last_trained(destination: str | None) -> KerasModel | None:
    """The model behind the newest version in a folder, if there is one.

    Raises:
        ComponentError: When it is no folder of this machine, to which nothing was ever pushed.
    """
    if destination is None:
        return None
    found = kept.kept(kept.mounted(destination, f"train: last={destination}"))
    log.info("the last one in %s: %s", destination, found.uri if found else "none yet, so learning begins anew")
    return found
