"""A service with typed commands as real processes: its errors, its replies and its leader, called by both clients."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rsm_spark as rsm
from examples.bank import Bank, InsufficientFunds
from ledger.dev import DevCluster
from rsm_spark.client.blocking import BlockingServiceClient
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, NoLeaderError, OutcomeUnknownError
from rsm_spark.transport.security import Security
from tests.integration.store_processes import stores
from tests.integration.test_store_cluster import run_cli
from tests.unit.rsm_spark.core.typed_bank import Shop

pytestmark = pytest.mark.asyncio
BANK = ("rsm_spark", "serve", "examples.bank:Bank")
SHOP = ("rsm_spark", "serve", "tests.unit.rsm_spark.core.typed_bank:Shop")


async def test_a_bank_of_typed_commands_survives_its_leader(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, command=BANK)
        leader = await replicas.leader()
        async with await rsm.ServiceClient.connect(log, uri) as bank:
            assert await bank.call(Bank.deposit, "ann", 9) == 9
            assert await bank.call(Bank.transfer, "ann", "bob", amount=4) == 5
            with pytest.raises(InsufficientFunds) as caught:
                await bank.call(Bank.transfer, "ann", "bob", 7)
            assert caught.value.missing == 2
            with pytest.raises(InvalidCommandError, match=r"transfer\(.*Expected `int`, got `str` - at `\$.amount`"):
                await bank.call(Bank.transfer, "ann", "bob", "7")  # type: ignore[call-overload]
            # What other languages send is checked by the leader.
            wrong = await bank.execute(b'["transfer", {"source": "ann", "target": "bob", "amount": -1}]')
            assert b'["InvalidCommandError",{"message":"transfer(' in wrong.payload
            leader.kill()
            replicas.gone(leader.replica_id)
            assert await bank.call(Bank.transfer, "bob", "ann", 1) == 3
        async with await rsm.ServiceClient.connect(
            log, uri, read_from="any", read=rsm.bounded(max_lag_ms=60_000)
        ) as any_:
            assert await any_.call(Bank.balance, "ann") == 6
        assert await asyncio.to_thread(_blocking, log, uri) == (6, 3)
        async with await rsm.ServiceClient.connect(log, uri) as bank:
            assert await bank.with_timeout(20.0).call(Bank.balance, "ann") == 6
            name, other = replicas.alive.popitem()
            other.kill()
            with pytest.raises((NoLeaderError, OutcomeUnknownError)):
                await bank.with_timeout(0.5).call(Bank.deposit, "ann", 1)
            replicas.start(name, command=BANK)
            # Whatever became of it, the session goes on.
            before = await bank.call(Bank.balance, "ann")
            assert before in {6, 7}
            assert await bank.call(Bank.deposit, "ann", 1) == before + 1


async def test_a_typed_service_is_called_from_a_shell(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", command=BANK)
        code, (calls,) = run_cli(uri, "call", "--list", "--log", log)
        assert code == 0
        assert [one["name"] for one in calls] == ["balance", "deposit", "transfer"]
        code, (reply,) = run_cli(uri, "call", "deposit", '{"name": "ann", "amount": 5}', "--log", log)
        assert (code, reply["reply"]) == (0, 5)
        code, (reply,) = run_cli(uri, "call", "balance", '{"name": "ann"}', "--log", log)
        assert (code, reply["reply"]) == (0, 5)
        for given, said, code in (
            ('{"source": "ann", "target": "bob", "amount": 7}', "InsufficientFunds(missing=2)", 1),
            ('{"source": "ann", "target": "bob"}', "missing required field `amount`", 2),
            ("[5]", "arguments are an object by name", 2),
        ):
            ended = await asyncio.to_thread(_shell, uri, "call", "transfer", given, "--log", log)
            assert (ended.returncode, ended.stdout) == (code, "")
            assert said in ended.stderr
            assert len(ended.stderr.splitlines()) == 1
        ended = await asyncio.to_thread(_shell, uri, "call", "--list", "--log", log)
        assert ended.stdout.startswith("query    balance(name: str) -> int\n           Return what an account has.\n")


def _shell(uri: str, *given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rsm_spark", *given],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "RSM_METADATA_URI": uri},
    )  # fmt: skip


def _blocking(log: str, uri: str) -> tuple[int, int]:
    with BlockingServiceClient.connect(log, uri) as bank:
        with pytest.raises(InsufficientFunds):
            bank.call(Bank.transfer, "ann", "bob", 100)
        return bank.call(Bank.balance, "ann"), bank.call(Bank.balance, "bob")


async def test_principals_may_do_what_their_entries_say(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    tokens = {name: f"token-of-{name}-0123456789abcdef" for name in ("replica", "teller", "reader", "other", "narrow")}
    more = {
        "replica": 'role = "replica"',
        "teller": f'role = "client"\naccess = "write"\nlogs = ["{log}"]',
        "reader": f'role = "client"\naccess = "read"\nlogs = ["{log}"]',
        "other": 'role = "client"\naccess = "write"\nlogs = ["elsewhere"]',
        "narrow": 'role = "client"\naccess = "write"\nprefix = "ann"',
    }
    principals = tmp_path / "principals.toml"
    for name, token in tokens.items():
        more[name] += f'\ntokens = ["{hashlib.sha256(token.encode()).hexdigest()}"]'
    principals.write_text("\n\n".join(f'[[principal]]\nname = "{name}"\n{one}' for name, one in more.items()))
    principals.chmod(0o600)
    for name, token in tokens.items():
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)

    async def as_(name: str) -> rsm.ServiceClient:
        security = Security(token_file=str(tmp_path / name)) if name else Security()
        return await rsm.ServiceClient.connect(log, uri, security=security, timeout_s=20)

    with stores(uri, log, tmp_path) as replicas:
        options = ("--principals", str(principals), "--token-file", str(tmp_path / "replica"))
        replicas.start("a", *options, command=BANK)
        async with await as_("teller") as teller:
            assert await teller.call(Bank.deposit, "ann", 9) == 9
        async with await as_("reader") as reader:
            assert await reader.call(Bank.balance, "ann") == 9
            with pytest.raises(InvalidCommandError, match=r"'reader' \(client\) reads only"):
                await reader.call(Bank.deposit, "ann", 9)
            assert await reader.call(Bank.balance, "ann") == 9
        for refused in ("other", "narrow", ""):
            async with await as_(refused) as client:
                with pytest.raises(ConnectionLostError):
                    await client.call(Bank.balance, "ann")


async def test_a_command_of_a_composition_writes_in_both_parts_or_in_none(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, command=SHOP)
        leader = await replicas.leader()
        async with await rsm.ServiceClient.connect(log, uri) as shop:
            assert await shop.call(Shop.bank.deposit, "ann", 5) == 5
            assert await shop.call(Shop.pay, "ann", 2) == 1
            written = await _kept(shop)
            assert written == ({"ann": 3, "shop": 2}, ["ann pays 2"])
            # Its letter is written first, then the bank refuses; what a part refuses may be caught, too.
            with pytest.raises(InsufficientFunds):
                await shop.call(Shop.pay, "ann", 4)
            assert await shop.call(Shop.try_to_pay, "ann", 4) is False
            assert await _kept(shop) == written
            leader.kill()
            replicas.gone(leader.replica_id)
            assert await _kept(shop) == written
            assert await shop.call(Shop.pay, "ann", 3) == 2
            assert await _kept(shop) == ({"ann": 0, "shop": 5}, ["ann pays 2", "ann pays 3"])


async def test_a_reply_of_a_wrong_type_is_refused_and_nothing_of_its_command_is_kept(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", command=SHOP)
        async with (
            await rsm.ServiceClient.connect(log, uri) as shop,
            await rsm.ServiceClient.connect(log, uri) as other,
        ):
            for _ in range(2):
                with pytest.raises(
                    InvalidCommandError,
                    match=r"nothing was changed: TypeError: .*lie\(\) -> int: its reply is 'five', which is not",
                ):
                    await shop.call(Shop.outbox.lie)
            # Its session goes on, and so does everybody else.
            assert await shop.call(Shop.outbox.post, "hello") == 1
            assert await other.call(Shop.bank.deposit, "ann", 5) == 5
            assert await _kept(other) == ({"ann": 5, "shop": 0}, ["hello"])


async def _kept(shop: rsm.ServiceClient) -> tuple[dict[str, int], list[str]]:
    """Return what the accounts have, and the letters."""
    accounts = {name: await shop.call(Shop.bank.balance, name) for name in ("ann", "shop")}
    return accounts, [letter.text for letter in await shop.call(Shop.outbox.texts)]
