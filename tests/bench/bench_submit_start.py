"""Start of an application of Spark: from its submit to the answer to its first action, in seconds.

    RSM_BENCH_ROUNDS=5 .venv/bin/python -m tests.bench.bench_submit_start

One application at a time, a program of a code pool in its jail, which asks for a sum of 100 numbers. `client`: each has
a driver of its own. `connect_first`: the first one of a tenant, for which a warm server is started. `connect`: those
after it. `connect_program` is of these the part from the program's first line to the answer, imports included.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from broker.client import BrokerClient
from ledger.dev.cluster import DevCluster
from tests.bench.figure import print_figure, say
from tests.integration.broker_processes import brokers
from tests.spark.submitting import APPLICATIONS, Submitting, submitting

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "5"))


def _start(here: Submitting) -> tuple[float, float]:
    """Return how long it took from the submit, and from the program's first line, to the answer."""
    submitted_s = time.time()
    words = here.result(here.submit("answers.py"))["output"].split()
    began_s, _, answered_s = map(float, words)
    return answered_s - submitted_s, answered_s - began_s


def _measure(folder: Path, client: BrokerClient, found: tuple[str, ...]) -> None:
    figures: dict[str, list[float]] = {}
    for mode in ("client", "connect"):
        place = folder / mode
        place.mkdir()
        options = (*found, "--submit-deploy-mode", mode)
        with submitting(place, client, "local[2]", *options, worker_id=mode) as here:
            first, _ = _start(here)
            say(f"{mode}: the first one {first:.2f} s")
            if mode == "connect":
                figures["submit_start_connect_first"] = [first]
            for number in range(ROUND_COUNT):
                whole, own = _start(here)
                say(f"{mode}: {number + 1} of {ROUND_COUNT}: {whole:.2f} s, of which the program {own:.2f} s")
                figures.setdefault(f"submit_start_{mode}", []).append(whole)
                figures.setdefault(f"submit_start_{mode}_program", []).append(own)
    for name, values in figures.items():
        print_figure(name, values, "s")


def _main() -> None:
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as name:
        folder = Path(name)
        cluster = DevCluster(folder / "cluster")
        cluster.start()
        found = ("--log", "bench", "--metadata-uri", cluster.metadata_uri)
        try:
            with (
                brokers(folder, "a", options=(*found, "--bookies", "3/3/2")) as (process,),
                BrokerClient.connect([process.url], tenant="acme") as client,
            ):
                client.deploy_code(APPLICATIONS, entries=["answers.py"], name="applications")
                _measure(folder, client, found)
        finally:
            cluster.stop()


if __name__ == "__main__":
    _main()
