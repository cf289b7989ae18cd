"""A registry of one image, from which the node pulls by digest (what OCI's distribution specification calls pull)."""

import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_TYPE = "application/vnd.oci.image"


@contextmanager
def registry(archive: Path) -> Iterator[str]:
    """Serve the image of an archive on this machine; yield its reference under the name of every kind of image."""
    with tarfile.open(archive) as opened:
        files = {entry.name: opened.extractfile(entry).read() for entry in opened}
    (listed,) = json.loads(files["manifest.json"])
    config, layer = files[listed["Config"]], files[listed["Layers"][0]]
    manifest = {"schemaVersion": 2, "mediaType": f"{_TYPE}.manifest.v1+json"}
    manifest |= {"config": _described("config.v1+json", config), "layers": [_described("layer.v1.tar", layer)]}
    written = json.dumps(manifest).encode()
    contents = {_digest(each): each for each in (config, layer, written)}

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            content = b"" if self.path == "/v2/" else contents.get(self.path.rpartition("/")[2])
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", f"{_TYPE}.manifest.v1+json" if content is written else f"{_TYPE}.layer")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if content and self.command == "GET":
                self.wfile.write(content)

        do_GET = do_HEAD  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}/tfopt-{{kind}}@{_digest(written)}"
        server.shutdown()


def _described(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
