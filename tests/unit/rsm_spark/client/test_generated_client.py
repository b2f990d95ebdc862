"""`rsm generate-client`: what it writes runs, and shows a type checker what a call takes and gives."""

from __future__ import annotations

import enum
import importlib
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from mypy import api as mypy

import rsm_spark as rsm
from ledger.errors import UsageError
from rsm_spark.cli.generate_client import client_text
from rsm_spark.testing import MachineHarness
from tests.unit.rsm_spark.core.typed_bank import Shop

_ROOT = Path(__file__).resolve().parents[4]
_SHOP = "tests.unit.rsm_spark.core.typed_bank:Shop"
_USE = """
from bank_client import BankClient, BlockingBankClient
from shop_client import BlockingShopClient


async def uses(log: str) -> int:
    async with await BankClient.connect(log) as bank:
        await bank.transfer("ann", "bob", "5")
        return await bank.balance("ann")


def uses_blocking(log: str) -> str:
    with BlockingShopClient.connect(log) as shop, BlockingBankClient.connect(log) as bank:
        shop.outbox_post("hello", shelf="b")
        bank.deposit("ann")
        return shop.bank_balance("ann")
"""


class Colour(enum.Enum):
    RED = "red"


class Typed(rsm.Service):
    @rsm.command
    def all(
        self,
        at: datetime | None,
        names: Annotated[list[str], msgspec.Meta(max_length=3)],
        *,
        colour: Colour = Colour.RED,
        word: Literal["a", "b"] = "a",
        table: dict[str, Any] | None = None,
    ) -> tuple[int, ...]:
        r'''Do all of it: "quotes" and \ too."'''
        return (len(names), 1)


def test_a_type_checker_sees_what_the_calls_of_a_written_client_take_and_give(tmp_path: Path) -> None:
    for name, module in (("examples.bank:Bank", "bank_client"), (_SHOP, "shop_client")):
        written = subprocess.run(
            [sys.executable, "-m", "rsm_spark", "generate-client", name, "--module-path", str(_ROOT)],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        (tmp_path / f"{module}.py").write_text(written.stdout)
    (tmp_path / "use.py").write_text(_USE)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {tmp_path}:{_ROOT}\n")
    said, _, code = mypy.run([
        "--strict", "--follow-imports=silent", "--config-file", str(tmp_path / "mypy.ini"),
        "--cache-dir", str(_ROOT / ".mypy_cache" / "clients"), *(str(one) for one in sorted(tmp_path.glob("*.py"))),
    ])  # fmt: skip
    assert code == 1
    *faults, _ = said.splitlines()
    assert [fault.partition(" error: ")[2] for fault in faults] == [
        'Argument 3 to "transfer" of "BankClient" has incompatible type "str"; expected "int"  [arg-type]',
        'Missing positional argument "amount" in call to "deposit" of "BlockingBankClient"  [call-arg]',
        'Incompatible return value type (got "int", expected "str")  [return-value]',
    ]


def test_types_and_defaults_of_all_kinds_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = client_text(f"{__name__}:Typed", Typed())
    (tmp_path / "typed_client.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    client = importlib.import_module("typed_client")
    assert client.TypedClient.all.__doc__.startswith('Do all of it: "quotes"')
    mine = f"_{__name__.replace('.', '_')}"
    for part in (
        "at: _datetime.datetime | None", "names: list[str]", f"colour: {mine}.Colour = {mine}.Colour.RED",
        "word: _typing.Literal['a', 'b'] = 'a'", "table: dict[str, _typing.Any] | None = None",
        "-> tuple[int, ...]:",
    ):  # fmt: skip
        assert part in text

    class Answering(client.TypedClient):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.harness = MachineHarness(Typed())

        async def call(self, *args: Any, **kwargs: Any) -> Any:
            return self.harness.call(*args, **kwargs)

    coroutine = Answering().all(None, ["a", "b"])
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value == (2, 1)


def test_what_cannot_be_written_is_refused_in_words() -> None:
    class Closing(rsm.Service):
        @rsm.command
        def close(self) -> None:
            pass

    class Listing(rsm.Service):
        @rsm.command
        def take(self, names: tuple[str, ...] = ("a",)) -> None:
            pass

    with pytest.raises(UsageError, match="command 'close': every client has a method 'close': rename the command"):
        client_text("m:Closing", Closing())
    with pytest.raises(UsageError, match=r"default \('a',\) cannot be written into another module: use None"):
        client_text("m:Listing", Listing())
    assert "class ShopClient(ServiceClient):" in client_text(_SHOP, Shop())
