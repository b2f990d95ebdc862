"""Tries to reach the warm server of another tenant, and tells what it has got."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as OtherSession

address, user, session_id, pids = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
own_token = os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"]


def tried(what):
    try:
        return str(what())[:300]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


def ask(token, more):
    remote = f"sc://{address}/;user_id={user}{more}{f';token={token}' if token else ''}"
    other = OtherSession.builder.remote(remote).create()
    # A refusal is final: what is not answered at once is not asked again.
    other.client.set_retry_policies([])
    return other.range(3).count()


def environments():
    """Return how many processes of others show a token."""
    found = 0
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = place.read_text(errors="replace")
        except OSError:
            continue
        found += "SPARK_CONNECT_AUTHENTICATE_TOKEN=" in text and own_token not in text
    return found


def listen():
    with socket.socket(socket.AF_INET6) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("::1", int(address.rsplit(":", 1)[1])))
    return "listens"


spark = SparkSession.builder.getOrCreate()
del os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
print(
    json.dumps(
        {
            "own": spark.range(3).count(),
            "with_own_token": tried(lambda: ask(own_token, f";session_id={session_id}")),
            "with_a_session_of_its_own": tried(lambda: ask(own_token, "")),
            "without_token": tried(lambda: ask("", ";use_ssl=false")),
            "environments": environments(),
            "signal": [tried(lambda pid=pid: os.kill(int(pid), signal.SIGTERM)) for pid in pids],
            "listens": tried(listen),
        }
    )
)
spark.stop()
