"""Callers of SQL's interactive transactions; as a process they work until their input ends, and keep what they saw.

Lists that are appended to and read, a bank, and two doctors one of whom is on call. Writes a JSON line with the numbers
of transactions several times a second; at the end a `SqlCallersHistory` to the file named.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Collection, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from rsm_spark.errors import NoLeaderError, OutcomeUnknownError
from rsm_spark.sql import InteractiveTransaction, SqlClient, SqlError, SqlRetryableError
from rsm_spark.testing.list_append import AppendOutcome, AppendTransaction, ListRead, ListWrite

TABLES = (
    "CREATE TABLE list (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID",
    "INSERT INTO list VALUES ('p', ''), ('q', ''), ('r', '')",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER CHECK (cents >= 0))",
    "INSERT INTO account VALUES (0, 100), (1, 100), (2, 100), (3, 100), (4, 100)",
    "CREATE TABLE doctor (id INTEGER PRIMARY KEY, is_on INTEGER)",
    "INSERT INTO doctor VALUES (0, 1), (1, 1)",
)
"""What callers need."""
TOTALS = "SELECT sum(cents), (SELECT sum(is_on) FROM doctor) FROM account"
TIMEOUTS_S = (60.0, 60.0, 3.0)
"""Of each client of the process: the last one gives up before a failover is over, and outcomes stay unknown."""
CALLER_COUNT = 6
_TELL_S = 0.2
KEYS = "pqr"


class SqlCaller:
    """Runs transactions of three kinds, and keeps what it saw."""

    def __init__(self, client: SqlClient, rng: random.Random, history: list[AppendTransaction], name: str) -> None:
        self.client = client
        self.rng = rng
        self.history = history
        self.name = name
        self.count = 0
        self.totals: set[int] = set()

    async def work(self) -> None:
        """Do one transaction, whatever becomes of it."""
        steps: list[ListRead | ListWrite] = []
        self.count += 1
        began_s, fate = time.monotonic(), AppendOutcome.OK
        try:
            tx = await self.client.begin()
            try:
                await self.rng.choice((self.lists, self.lists, self.transfer, self.doctor))(tx, steps)
            except BaseException:
                await tx.rollback()
                raise
            await tx.commit()
        except (OutcomeUnknownError, NoLeaderError):  # Perhaps done, as far as this client knows.
            fate = AppendOutcome.UNKNOWN
        except SqlRetryableError:
            fate = AppendOutcome.FAILED
        ended_s = inf if fate is AppendOutcome.UNKNOWN else time.monotonic()
        self.history.append(AppendTransaction(len(self.history), tuple(steps), began_s, ended_s, fate))

    async def lists(self, tx: InteractiveTransaction, steps: list[ListRead | ListWrite]) -> None:
        for _ in range(self.rng.randint(1, 4)):
            key = self.rng.choice(KEYS)
            if self.rng.random() < 0.5:
                value = f"{self.name}{self.count}.{len(steps)}"
                steps.append(ListWrite(key, value))  # Perhaps done from now on.
                await tx.execute("UPDATE list SET v = v || ' ' || ? WHERE k = ?", (value, key), expected=1)
            else:
                ((text,),) = (await tx.execute("SELECT v FROM list WHERE k = ?", (key,))).rows
                steps.append(ListRead(key, tuple(str(text).split())))

    async def transfer(self, tx: InteractiveTransaction, _steps: object) -> None:
        """Move money; now and then try it with an account that has none, and look at all."""
        giver, taker = self.rng.sample(range(5), 2)
        cents = self.rng.randint(1, 60)
        ((left,),) = (await tx.execute("SELECT cents FROM account WHERE id = ?", (giver,))).rows
        await tx.execute("SAVEPOINT before")
        await tx.execute("UPDATE account SET cents = cents + ? WHERE id = ?", (cents, taker))
        try:
            await tx.execute("UPDATE account SET cents = cents - ? WHERE id = ?", (cents, giver))
        except SqlError as error:
            if error.kind != "constraint" or left >= cents:
                raise
            await tx.execute("ROLLBACK TO before")
        ((total,),) = (await tx.execute("SELECT sum(cents) FROM account")).rows
        self.totals.add(total)

    async def doctor(self, tx: InteractiveTransaction, _steps: object) -> None:
        """One of two goes home only while the other one is on call."""
        who = self.rng.randint(0, 1)
        ((on_call,),) = (await tx.execute("SELECT sum(is_on) FROM doctor")).rows
        assert on_call >= 1
        await tx.execute("UPDATE doctor SET is_on = ? WHERE id = ?", (int(on_call < 2), who))

    async def look(self) -> None:
        """Read all lists in one transaction: what is there in the end."""
        tx = await self.client.begin()
        rows = (await tx.execute("SELECT * FROM list")).rows
        await tx.commit()
        steps = tuple(ListRead(str(key), tuple(str(text).split())) for key, text in rows)
        self.history.append(AppendTransaction(len(self.history), steps, time.monotonic(), inf, AppendOutcome.OK))


def check_totals(last: Sequence[Any], seen: Collection[Any]) -> None:
    """Fail if money came or went, or nobody is on call."""
    assert tuple(last) in ((500, 1), (500, 2))
    assert set(seen) == {500}


class SqlCallersArguments(msgspec.Struct):
    """What the process is told, as JSON; `path` is of its history."""

    metadata_uri: str
    log: str
    path: str
    seed: int


class SqlCallersHistory(msgspec.Struct):
    """What the process saw.

    Attributes:
        transactions: In the order in which they ended.
        totals: Sums of money that transactions read.
        last: Money and doctors on call in the end.
        revision: At which that was read.

    """

    transactions: list[tuple[int, list[tuple[str, list[str] | str]], float, float | None, AppendOutcome]]
    totals: list[int]
    last: list[int]
    revision: int

    def appended(self) -> list[AppendTransaction]:
        """Return the transactions."""
        return [
            AppendTransaction(
                number,
                tuple(
                    ListWrite(key, what) if isinstance(what, str) else ListRead(key, tuple(what)) for key, what in steps
                ),
                began_s,
                inf if ended_s is None else ended_s,
                fate,
            )
            for number, steps, began_s, ended_s, fate in self.transactions
        ]


def _kept(one: AppendTransaction) -> tuple[Any, ...]:
    steps = [(step.key, step.value if isinstance(step, ListWrite) else list(step.values)) for step in one.steps]
    return one.number, steps, one.began_s, None if one.ended_s == inf else one.ended_s, one.fate


def _tell(history: list[AppendTransaction]) -> None:
    told = {
        "answered": sum(one.fate is AppendOutcome.OK for one in history),
        "unknown": sum(one.fate is AppendOutcome.UNKNOWN for one in history),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def main(arguments: SqlCallersArguments) -> None:
    history: list[AppendTransaction] = []
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                await SqlClient.connect(arguments.log, arguments.metadata_uri, timeout_s=timeout_s)
            )
            for timeout_s in TIMEOUTS_S
        ]
        await clients[0].transaction(TABLES)
        callers = [
            SqlCaller(clients[n % len(clients)], random.Random(f"{arguments.seed}/{n}"), history, "abcdef"[n])
            for n in range(CALLER_COUNT)
        ]
        stop = asyncio.Event()
        asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())

        async def work(caller: SqlCaller) -> None:
            while not stop.is_set():
                await caller.work()

        tasks = [asyncio.create_task(work(caller)) for caller in callers]
        while not all(task.done() for task in tasks):
            _tell(history)
            await asyncio.wait(tasks, timeout=_TELL_S, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        await callers[0].look()
        found = await clients[0].query(TOTALS)
    seen = sorted({total for caller in callers for total in caller.totals})
    kept = {
        "transactions": [_kept(one) for one in history],
        "totals": seen,
        "last": found.rows[0],
        "revision": found.revision,
    }
    await asyncio.to_thread(Path(arguments.path).write_bytes, msgspec.json.encode(kept))
    _tell(history)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=SqlCallersArguments)))
