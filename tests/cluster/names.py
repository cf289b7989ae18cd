"""Answer DNS queries of pods: a service's name has the addresses of the pods behind it, so no proxy is needed.

Run it with ``python -m tests.cluster.names ADDRESS KUBECONFIG``.
"""

import socket
import struct
import sys

from kubernetes import client, config

_FAILED, _NO_NAME = 2, 3


def addresses(services: client.CoreV1Api, name: str) -> list[str]:
    """Return the addresses behind NAME.NAMESPACE[.svc.cluster.local]; raise LookupError for other names."""
    words = name.lower().removesuffix(".cluster.local").removesuffix(".svc").split(".")
    if len(words) != 2:
        raise LookupError(name)
    try:
        endpoints = services.read_namespaced_endpoints(*words)
    except client.ApiException as error:
        raise LookupError(name) from error
    return [address.ip for subset in endpoints.subsets or [] for address in subset.addresses or []]


def answer(services: client.CoreV1Api, query: bytes) -> bytes:
    """Return the response to a query (RFC 1035)."""
    labels, end = [], 12
    while length := query[end]:
        labels.append(query[end + 1 : end + 1 + length].decode())
        end += 1 + length
    question = query[12 : end + 5]
    (kind,) = struct.unpack("!H", query[end + 1 : end + 3])
    code, resolved = 0, []
    try:
        resolved = addresses(services, ".".join(labels))
    except LookupError:
        code = _NO_NAME
    except Exception as error:  # the API server does not answer
        print(f"{'.'.join(labels)}: {error}", flush=True)
        code = _FAILED
    records = [b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(ip) for ip in resolved if kind == 1]
    return query[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, len(records), 0, 0) + question + b"".join(records)


def main(address: str, kubeconfig: str) -> None:
    config.load_kube_config(kubeconfig)
    services = client.CoreV1Api()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            query, sender = server.recvfrom(4096)
            server.sendto(answer(services, query), sender)


if __name__ == "__main__":
    main(*sys.argv[1:])
