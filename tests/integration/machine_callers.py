"""A caller of a map who notes what was acknowledged: writes k0, k1, … for ever, or reads all of them.

python -m tests.integration.machine_callers write LOG     prints each number once it is acknowledged
python -m tests.integration.machine_callers read LOG N    exit code 0 if 0 … N - 1 are there
python -m tests.integration.machine_callers ask URL       prints an answer, asked with what RSM_STORE__… names
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.request
from pathlib import Path

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map import MapClient


async def _write(log: str) -> None:
    number = 0
    while True:
        try:
            async with await MapClient.connect(log) as client:
                while True:
                    await client.put(f"k{number:06}".encode(), str(number).encode())
                    print(number, flush=True)
                    number += 1
        except (LedgerError, RsmError) as error:
            print(f"again: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.2)


async def _read(log: str, count: int) -> None:
    async with await MapClient.connect(log) as client:
        for number in range(count):
            found = await client.get(f"k{number:06}".encode())
            assert found is not None, f"k{number:06} is lost"
            assert found.value == str(number).encode()


def _ask(url: str) -> None:
    token = Path(os.environ["RSM_STORE__TOKEN_FILE"]).read_text().strip()
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own
    context = ssl.create_default_context(cafile=os.environ["RSM_STORE__TLS_CA"])
    with urllib.request.urlopen(asked, timeout=60, context=context) as answer:  # noqa: S310
        print(answer.read().decode())


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        _ask(sys.argv[2])
    elif sys.argv[1] == "write":
        asyncio.run(_write(sys.argv[2]))
    else:
        asyncio.run(_read(sys.argv[2], int(sys.argv[3])))
