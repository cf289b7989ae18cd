"""The result of a Beam pipeline, returned from a worker to the launching process through a file.

A file is the only way that every runner supports. Its content is a pickle, which can run code when it is read, so the
worker authenticates it with a key of this run (HMAC, RFC 2104): a file that anything else wrote is refused unread.
"""

import hmac
import pickle
import secrets
from dataclasses import dataclass, field
from typing import Any

from tfopt.errors import ComponentError
from tfopt.storage import remote_files

_DIGEST = "sha256"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class ResultFile:
    """The file of a result. Workers get a copy of this object, with the key of the authentication code."""

    uri: str
    key: bytes = field(default_factory=lambda: secrets.token_bytes(_DIGEST_BYTES), repr=False)

    def write(self, result: Any) -> None:
        """Write the result; called by a worker."""
        content = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        with remote_files.open_file(self.uri, "wb") as stream:
            stream.write(hmac.digest(self.key, content, _DIGEST) + content)

    def take(self) -> Any:
        """Read and remove the file in the launching process; raise ComponentError if no worker of this run wrote it."""
        try:
            with remote_files.open_file(self.uri) as stream:
                code, content = stream.read(_DIGEST_BYTES), stream.read()
        except (ComponentError, OSError) as error:
            raise ComponentError(
                "the Beam runner ended without a result",
                "a runner that writes to the output's address",
                "give workers on other machines an address that they share with this one",
            ) from error
        remote_files.remove(self.uri)
        if not hmac.compare_digest(code, hmac.digest(self.key, content, _DIGEST)):
            raise ComponentError(
                f"{self.uri}: not written by the workers of this run, or incomplete",
                "the result that a worker wrote",
                "allow no other process to write to the output's folder while the step runs",
            )
        return pickle.loads(content)
