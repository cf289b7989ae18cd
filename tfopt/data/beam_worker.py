"""Program ``tfopt-beam-worker``: a Python worker that an engine starts, for ``--environment_type=PROCESS``.

Flink's TaskManagers and Spark's executors start it with the addresses of their services (Beam's container contract).
Beam has such a program in its container images only. It ends when the process that started it ends, so that nothing
writes outputs any more when the engine repeats the work of a killed TaskManager.
"""

import argparse
import os
import sys
import threading
import time

from tfopt.processes.startup import speed_up_imports

SECONDS = 0.5  # between two looks at the parent


def main() -> int:
    """Run the worker until the engine ends it."""
    parser = argparse.ArgumentParser(prog="tfopt-beam-worker", description="A worker that Flink or Spark starts.")
    parser.add_argument("--id", required=True, help="the worker's name, chosen by the engine")
    for service in ("provision", "control", "logging"):
        help = f"address of the {service} service; without it the provision service is asked"
        parser.add_argument(f"--{service}_endpoint", default="", help=help)
    arguments, _ = parser.parse_known_args()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    os.environ |= _environment(arguments)
    sdk_worker_main.main(sys.argv)
    return 0


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    variables = {"WORKER_ID": arguments.id}
    addresses = {"control": arguments.control_endpoint, "logging": arguments.logging_endpoint}
    if arguments.provision_endpoint:
        import grpc
        from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
        from google.protobuf import json_format

        with grpc.insecure_channel(arguments.provision_endpoint) as channel:
            service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            request = beam_provision_api_pb2.GetProvisionInfoRequest()
            info = service.GetProvisionInfo(request, metadata=[("worker_id", arguments.id)], timeout=60).info
        addresses = {name: address or getattr(info, f"{name}_endpoint").url for name, address in addresses.items()}
        variables["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
        variables["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    for name, address in addresses.items():
        if address:
            variables[f"{name.upper()}_API_SERVICE_DESCRIPTOR"] = f'url: "{address}"'
    return variables


def _end_with(parent: int) -> None:
    """End this process when its parent has ended.

    `tfopt.processes.parent_death` cannot be used: its signal comes when the *thread* ends that started the process, and
    Java starts processes in threads that end earlier.
    """
    while os.getppid() == parent:
        time.sleep(SECONDS)
    os._exit(1)


if __name__ == "__main__":
    speed_up_imports()
    sys.exit(main())
