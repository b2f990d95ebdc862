"""A checkpoint at a file store with TLS and bearer tokens, by Hadoop's own client as pyspark ships it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from ledger.dev import DevCluster
from tests.integration.file_stores import SERVE
from tests.integration.store_processes import stores
from tests.spark.hadoop_shell import HadoopShell
from tests.unit.ledger.bookie.test_tls import Authority

_SECRET, _SERVERS = "q" * 40, "c" * 40
_TIMEOUT_S = 500
_PROVIDER = "org.apache.hadoop.hdfs.web.oauth2.ConfCredentialBasedAccessTokenProvider"

_QUERY = """
import json, sys
from pyspark.sql import SparkSession, functions as F

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in given["conf"].items():
    builder = builder.config(name, value)
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
lines = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).json(given["source"])

def told(checkpoint):
    counts = {}
    def keep(frame, _batch):
        counts.update({row.k: row.n for row in frame.collect()})
    counted = lines.groupBy("k").agg(F.count("*").alias("n")).writeStream.outputMode("update").foreachBatch(keep)
    query = counted.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return counts

said = [told(given["checkpoint"])]
with open(given["source"] + "/2.json", "w") as file:
    print(json.dumps({"k": "k1"}), file=file)
said.append(told(given["checkpoint"]))
try:
    told(given["elsewhere"])
except Exception as error:
    said.append(str(error))
print(json.dumps(said))
spark.stop()
"""


def _principals(folder: Path) -> list[str]:
    """Write who may do what: a query with one directory, and the servers; return the options that say so."""
    text = ""
    for name, more, secret in (
        ("query", 'role = "client"\naccess = "write"\nlogs = ["files"]\nprefix = "/checkpoints/orders"\n', _SECRET),
        ("replica", 'role = "replica"\n', _SERVERS),
    ):
        text += f'[[principal]]\nname = "{name}"\n{more}tokens = ["{hashlib.sha256(secret.encode()).hexdigest()}"]\n'
    for name, content in (("principals.toml", text), ("token", _SERVERS + "\n")):
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    return ["--principals", str(folder / "principals.toml"), "--token-file", str(folder / "token")]


def _truststore(authority: Authority, folder: Path) -> str:
    """Return a file from which Java trusts what an authority has signed."""
    path = folder / "trust.p12"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "files", "-file", authority.ca, "-keystore", str(path)]
    subprocess.run([*command, "-storetype", "PKCS12", "-storepass", "changeit"], check=True, capture_output=True)
    return str(path)


@pytest.mark.timeout(600)
def test_a_query_keeps_its_checkpoint_behind_tls_and_a_token(
    cluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("files", host="IP:127.0.0.1,DNS:localhost")
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.json").write_text("".join(f'{{"k": "k{line % 3}"}}\n' for line in range(9)))
    tls = ["--tls-cert", signed["cert"], "--tls-key", signed["key"], "--tls-ca", authority.ca]
    with stores(cluster.metadata_uri, "files", tmp_path) as running:
        options = ("--http-port", "0", *tls, *_principals(tmp_path))
        address = running.start("a", *options, command=SERVE).ready["http_address"]
        trusting = f"-Djavax.net.ssl.trustStore={_truststore(authority, tmp_path)}"
        trusting += " -Djavax.net.ssl.trustStorePassword=changeit"
        conf = {
            "spark.hadoop.dfs.webhdfs.oauth2.enabled": "true",
            "spark.hadoop.dfs.webhdfs.oauth2.access.token.provider": _PROVIDER,
            "spark.hadoop.dfs.webhdfs.oauth2.refresh.url": f"https://{address}/webhdfs/oauth2/token",
            "spark.hadoop.dfs.webhdfs.oauth2.client.id": "query",
            "spark.hadoop.dfs.webhdfs.oauth2.credential": _SECRET,
            "spark.driver.extraJavaOptions": f"{trusting} -XX:TieredStopAtLevel=1",
        }
        store = f"swebhdfs://{address}"
        hadoop = {name.removeprefix("spark.hadoop."): value for name, value in conf.items() if "hadoop" in name}
        shell = HadoopShell(tmp_path / "right", store, hadoop, *trusting.split())
        shell.done("-mkdir", "-p", "/checkpoints/orders")
        shell.done("-put", str(source / "0.json"), "/checkpoints/orders/by-hand")
        wrong = HadoopShell(
            tmp_path / "wrong", store, hadoop | {"dfs.webhdfs.oauth2.credential": "x" * 40}, *trusting.split()
        )
        refused = wrong.run("-cat", "/checkpoints/orders/by-hand")
        assert (refused.returncode, refused.stdout) == (1, b"")
        host, _, port = address.rpartition(":")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority.ca)
        files = fsspec.filesystem("webhdfs", host=host, port=int(port), use_https=True, skip_instance_cache=True)
        for secret, is_right in ((_SECRET, True), ("x" * 40, False)):
            files.session.headers["Authorization"] = f"Bearer {secret}"
            with contextlib.nullcontext() if is_right else pytest.raises(PermissionError):
                assert files.cat_file("/checkpoints/orders/by-hand") == (source / "0.json").read_bytes()
        given = {
            "source": str(source), "conf": conf, "checkpoint": f"{store}/checkpoints/orders/query",
            "elsewhere": f"{store}/checkpoints/others",
        }  # fmt: skip
        command = [sys.executable, "-c", _QUERY, json.dumps(given)]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        assert asked.returncode == 0, asked.stderr[-3000:]
        first, second, elsewhere = json.loads(asked.stdout.splitlines()[-1])
        assert first == {"k0": 6, "k1": 6, "k2": 6}
        assert second == {"k1": 7}, "it went on from its checkpoint"
        assert "may touch /checkpoints/orders" in elsewhere
