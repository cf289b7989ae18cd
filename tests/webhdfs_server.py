"""A WebHDFS server for tests: the operations of a name node on the files below a local folder.

As a name node does, it answers requests for content with the address to send them to, here its own.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "/webhdfs/v1"


@contextmanager
def serve(root: Path) -> Iterator[str]:
    """Serve the files below a folder, and yield the address of the root."""

    class Handler(_Handler):
        folder = root

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"webhdfs://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    folder: Path

    def do_GET(self):
        self._parse()
        if not self.file.exists():
            return self._refuse(404, "FileNotFoundException", f"File does not exist: {self.path_of_file}")
        if self.operation == "GETFILESTATUS":
            return self._reply({"FileStatus": self._status(self.file, "")})
        if self.operation == "LISTSTATUS":
            files = sorted(self.file.iterdir()) if self.file.is_dir() else [self.file]
            statuses = [self._status(file, file.name if self.file.is_dir() else "") for file in files]
            return self._reply({"FileStatuses": {"FileStatus": statuses}})
        assert self.operation == "OPEN"
        if "data" not in self.options:
            return self._redirect()
        start = int(self.options["offset"])
        return self._send(200, self.file.read_bytes()[start : start + int(self.options["length"])])

    def do_PUT(self):
        self._parse()
        if self.operation == "MKDIRS":
            self.file.mkdir(parents=True, exist_ok=True)
            return self._reply({"boolean": True})
        assert self.operation == "CREATE"
        if "data" not in self.options:
            return self._redirect()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(self.body)
        return self._send(201)

    def do_POST(self):
        self._parse()
        assert self.operation == "APPEND"
        if "data" not in self.options:
            return self._redirect()
        with self.file.open("ab") as file:
            file.write(self.body)
        return self._send(200)

    def do_DELETE(self):
        self._parse()
        assert self.operation == "DELETE"
        shutil.rmtree(self.file) if self.file.is_dir() else self.file.unlink(missing_ok=True)
        self._reply({"boolean": True})

    def log_message(self, *words):
        pass

    def _parse(self):
        address = urlsplit(self.path)
        self.options = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.operation = self.options["op"]
        self.path_of_file = unquote(address.path).removeprefix(PREFIX)
        self.file = self.folder / self.path_of_file.strip("/")
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))

    @staticmethod
    def _status(file: Path, suffix: str) -> dict[str, object]:
        facts = file.stat()
        kind = "DIRECTORY" if file.is_dir() else "FILE"
        size = 0 if file.is_dir() else facts.st_size
        return {"pathSuffix": suffix, "type": kind, "length": size, "modificationTime": facts.st_mtime_ns // 10**6}

    def _redirect(self):
        self.send_response(307)
        self.send_header("Location", f"http://{self.headers['Host']}{self.path}&data=true")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _refuse(self, status: int, exception: str, message: str):
        error = {"RemoteException": {"exception": exception, "message": message}}
        self._send(status, json.dumps(error).encode())

    def _reply(self, content: dict[str, object]):
        self._send(200, json.dumps(content).encode())

    def _send(self, status: int, content: bytes = b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
