"""The part of the Kubernetes API that KFP's backend uses: objects of any kind, over TLS, with no cluster behind it."""

import base64
import datetime
import http.server
import ipaddress
import json
import random
import ssl
import string
import threading
import uuid
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

COLLECTION_PARTS = {"api": 6, "apis": 7}  # /api/v1/namespaces/NAMESPACE/KIND, /apis/GROUP/VERSION/namespaces/…


class KubernetesApi:
    """Start with ``with KubernetesApi(ADDRESS, FOLDER) as cluster``.

    Attributes:
        objects: The objects by path, such as ``/api/v1/namespaces/kubeflow/configmaps/kfp-launcher``.
        changed: Set whenever an object is created.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.changed = threading.Event()
        self.certificate, key = _certificate(address, folder)
        self._http = http.server.ThreadingHTTPServer((address, 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.host, self.port = address, self._http.server_port

    def __enter__(self) -> "KubernetesApi":
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()

    def add(self, resource: str, name: str, **fields: Any) -> None:
        """Add an object of the core API, such as a secret."""
        self._create(f"/api/v1/namespaces/kubeflow/{resource}", {"metadata": {"name": name}, **fields})

    def add_secret(self, name: str, **values: str) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.add("secrets", name, kind="Secret", apiVersion="v1", data=encoded)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [stored for path, stored in list(self.objects.items()) if path.split("/")[-2] == kind]

    def serve(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        if method == "POST" and body is not None:
            return 201, self._create(path, body)
        if method == "GET" and _is_collection(path):
            items = [stored for name, stored in self.objects.items() if name.rpartition("/")[0] == path]
            return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        if path not in self.objects:
            return 404, _failure(404, "NotFound", f"nothing at {path}")
        if method == "DELETE":
            return 200, self.objects.pop(path)
        if method == "PUT" and body is not None:
            self.objects[path] = body
        if method == "PATCH" and body is not None:
            _merge(self.objects[path], body)
        return 200, self.objects[path]

    def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        metadata = body["metadata"]
        if "name" not in metadata:
            letters = random.SystemRandom().choices(string.ascii_lowercase, k=5)  # each test seeds the other generator
            metadata["name"] = metadata["generateName"] + "".join(letters)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now, "resourceVersion": "1"}
        metadata.setdefault("namespace", path.split("/namespaces/")[1].split("/")[0])
        self.objects[f"{path}/{metadata['name']}"] = body
        self.changed.set()
        return body


def _is_collection(path: str) -> bool:
    return len(path.split("/")) == COLLECTION_PARTS.get(path.split("/")[1])


def _merge(stored: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            stored.pop(key, None)
        elif isinstance(value, dict) and isinstance(stored.get(key), dict):
            _merge(stored[key], value)
        else:
            stored[key] = value


def _failure(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        **{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"},
        **{"code": code, "reason": reason, "message": message},
    }


def _certificate(address: str, folder: Path) -> tuple[Path, Path]:
    """Write a certificate for the address that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "ca.crt", folder / "ca.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *formats))
    return certificate_file, key_file


def _handler(cluster: KubernetesApi) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            if "watch=true" in query:  # nothing changes that the backend must see at once
                status, text = 200, b""
            else:
                status, body = cluster.serve(self.command, path, json.loads(content) if content else None)
                text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
