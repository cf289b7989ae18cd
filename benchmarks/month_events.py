"""Events of a month of retrainings: a receiver that is down, a weakened run file, canaries, and a drift."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import drift
import numpy as np
import pandas as pd

from tests.components.exporters import write_split
from tfopt.artifacts import Model

TFOPT = [sys.executable, "-m", "tfopt.run"]
OWNER = "ml-platform@example.com"
GOAL = "accuracy max_degradation 2%"
POLICY = f"owner: {OWNER}\ngoals: [{GOAL}]\n"
RECORDS = 600  # requests of a replay
NOT_BLESSED, RECALIBRATE = 3, 6  # exit codes of `tfopt promote` and `tfopt check_drift`


class Receiver:
    """A receiver of notifications on this machine, which can be down.

    Attributes:
        received: The events by their id.
    """

    def __init__(self) -> None:
        """Listen on a free port."""
        self.received: dict[str, dict[str, Any]] = {}
        self._server = self._listen(0)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _listen(self, port: int) -> ThreadingHTTPServer:
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received[event["id"]] = event
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections."""
        port = self._server.server_address[1]
        self.close()
        try:
            yield
        finally:
            self._server = self._listen(port)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def call(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command of tfopt in a folder."""
    return subprocess.run([*TFOPT, *words], cwd=folder, env=environment, check=False, capture_output=True, text=True)


def try_weaker_goals(folder: Path, environment: Mapping[str, str]) -> str:
    """Run with a goal that is weaker than the policy; return what is then not as promised."""
    weaker = (folder / "retrain.yaml").read_text().replace("max_degradation: 2%", "max_degradation: 20%")
    (folder / "weaker.yaml").write_text(weaker)
    for command in ("plan", "run"):
        ended = call(folder, command, "-f", "weaker.yaml", environment=environment)
        if ended.returncode != 1 or OWNER not in ended.stderr or "goals" not in ended.stderr:
            return f"tfopt {command} with a goal that is weaker than the policy: {ended.returncode} {ended.stderr}"
    return ""


def replay_canary(folder: Path, canary: Path, served: Path, rows: pd.DataFrame, answers: str, limit: str) -> str:
    """Replay requests on a canary and the served version, and promote or withdraw it by the verdict.

    Args:
        folder: Of the month.
        canary: The canary's folder.
        served: The served version's folder.
        rows: The requests.
        answers: What has to agree: ``classes``, or ``values`` (to 1 % of their range).
        limit: The largest share of other answers, such as ``"2%"``.

    Returns:
        ``promoted`` or ``withdrawn``, and the reason.
    """
    requests = folder / "requests.jsonl"
    columns = rows.drop(columns="label").head(RECORDS).to_dict("records")
    records = [{name: [value] for name, value in row.items()} for row in columns]
    requests.write_text("\n".join(json.dumps({"instances": [record]}) for record in records))
    out = folder / "replayed" / canary.name
    words = ["--recording", str(requests), "--rate", "200", "--goals", f"disagreement max {limit}"]
    words += ["--answers", answers, "--tolerance", "0.01"]
    words += ["--replayed", str(out / "report"), "--infra-blessing", str(out / "verdict")]
    ended = call(folder, "replay", "--model", str(canary), "--served", str(served), *words)
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    ended = call(folder, "promote", "served", "--verdict", str(out / "verdict"), "--or-withdraw")
    if ended.returncode not in (0, NOT_BLESSED):
        raise RuntimeError(ended.stderr)
    return "withdrawn" if ended.returncode else "promoted"


def recalibrate_after_drift(folder: Path, engine: str) -> Iterator[str]:
    """Serve digits in int8, multiply the inputs of all requests, and do what check_drift decides.

    Yield a line for each promise that was not held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = drift.digits()
    served = drift.serve(table, 0, folder)
    requests, labels = served.requests[:RECORDS], table.labels[served.requests[:RECORDS]]
    scaled = {name: (values * table.scale).astype("f4") for name, values in table.columns.items()}
    columns = {name: values[requests] for name, values in scaled.items()}
    train, evaluated = np.array_split(served.labelled, 2)
    for split, rows in (("train", train), ("eval", evaluated)):
        write_split(
            folder / "recent", {name: scaled[name][rows] for name in scaled} | {"label": table.labels[rows]}, split
        )

    old, parent = Model(folder / "int8"), str(served.parent.path)
    words = ["--model", str(old.path), "--parent", parent, "--drift", str(folder / "drift")]
    words += ["--recording", str(served.record(columns, "scaled")), "--reference", str(served.examples.path)]
    decided = call(folder, "check_drift", *words, "--detailed-exitcode")
    if decided.returncode != RECALIBRATE:
        yield f"drift: not decided to recalibrate: {decided.returncode} {decided.stderr}"
    values = [
        f"model={parent}",
        "examples=recent",
        "destination=served",
        "objective=size",
        'goals=["quality max_degradation 5%"]',
    ]
    words = [word for value in values for word in ("--set", value)]
    ended = call(folder, "run", "optimize", "--engine", engine, "--require-blessing", *words)
    if ended.returncode:
        yield f"drift: nothing was pushed after the recalibration: {ended.returncode} {ended.stderr}"
        return
    new = Model((folder / "served" / "latest").resolve())
    accuracies = [drift.accuracy(model, columns, labels) for model in (served.parent, old, new)]
    print("drift: accuracy {:.3f} in float32, {:.3f} in int8, {:.3f} after the recalibration".format(*accuracies))
    if accuracies[2] - accuracies[1] < 0.9 * (accuracies[0] - accuracies[1]):
        yield "drift: the recalibrated model regains less than 90 % of the loss"


def price_of(folder: Path, per_hour: float, rate: float, hours: float) -> str:
    """Return what the served model saves in a month at a rate of requests, less what the runs of the month cost."""
    fleet = {"destinations": [{"destination": str(folder / "served"), "requests_per_second": rate}]}
    (folder / "fleet.yaml").write_text(json.dumps(fleet))
    ended = call(folder, "fleet", "-f", "fleet.yaml", "--price", str(per_hour), "--json")
    (state,) = json.loads(ended.stdout)["destinations"]
    saved, cost = state.get("cost", {}).get("saved_per_month"), hours * per_hour
    if saved is None:
        return f"net: unknown, as no undisturbed speed was measured; {hours:.2f} h of runs cost {cost:.2f}"
    return (
        f"net {saved - cost:+.2f}: {saved:.2f} saved in a month at {rate:.0f} predictions a second, "
        f"{cost:.2f} for {hours:.2f} h of runs, at {per_hour} an hour"
    )
