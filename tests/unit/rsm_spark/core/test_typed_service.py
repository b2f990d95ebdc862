"""Services with typed commands: what is logged, what is replied, what their parts do together."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import examples.bank
import rsm_spark as rsm
from examples.bank import Account, Bank, InsufficientFunds
from rsm_spark.core.records import REPLY_BYTES_MAX
from rsm_spark.errors import InvalidCommandError, InvalidDescriptionError
from rsm_spark.testing import MachineHarness, check_machine, simulate
from tests.unit.rsm_spark.core.typed_bank import Letter, Outbox, ShelfFull, Shop

NAMES, AMOUNTS = st.sampled_from(["ann", "bob", "eve"]), st.integers(1, 9)


def test_a_typed_command_is_logged_by_the_rows_that_it_leaves() -> None:
    bank = MachineHarness(Bank())
    done = bank.execute(rsm.encode_call(Bank.deposit, "ann", 5))
    assert done.records == (("accounts_written", {"name": "ann", "balance": 5}),)
    again = bank.execute(rsm.encode_call(Bank.transfer, "ann", "ann", 5))
    assert again.records == done.records  # One row, written twice.
    assert bank.call(Bank.balance, "ann") == 5
    assert bank.rows("accounts") == {("ann",): (5,)}


def test_an_error_of_the_domain_logs_nothing_and_is_remembered() -> None:
    bank = MachineHarness(Bank())
    bank.call(Bank.deposit, "ann", 5)
    with pytest.raises(InsufficientFunds) as caught:
        bank.call(Bank.transfer, "ann", "bob", 7)
    assert caught.value.missing == 2
    refused = bank.execute(rsm.encode_call(Bank.transfer, "ann", "bob", 7))
    assert refused.records == ()
    assert bank.rows("accounts") == {("ann",): (5,)}  # Bob had got his before it was seen.
    sessions = [row for row in bank._state.rows() if row.table == "_sessions"]  # noqa: SLF001 - the kernel's table
    assert refused.reply in sessions[0].row  # Whoever asks again is told the same.


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'["transfer",{"source":"ann","target":"bob","amount":"7"}]', "Expected `int`, got `str` - at `$.amount`"),
        (b'["transfer",{"source":"ann","target":"bob","amount":0}]', "Expected `int` >= 1 - at `$.amount`"),
        (b'["transfer",{"source":"ann","amount":1}]', "missing required field `target`"),
        (b'["deposit",{"name":"ann","amount":1,"much":2}]', "unknown field `much`"),
        (b'["steal",{}]', "service bank has no command 'steal'; it has deposit, transfer"),
        (b'["balance",{"name":"ann"}]', "'balance' of service bank is no command"),
        (b"anything", "this is no call, which is [name, {argument: value}]"),
        (b"", "this is no call"),
        (b"\x92\xa1a", "this is no call"),
    ],
)
def test_a_wrong_call_is_one_error_and_changes_nothing(sent: bytes, said: str) -> None:
    bank = MachineHarness(Bank())
    done = bank.execute(sent)
    assert done.records == ()
    if sent[:1] != b"\x92":
        name, fields = msgspec.json.decode(done.reply)
        assert (name, said in fields["message"]) == ("InvalidCommandError", True), fields


_DEEP = 100_000


@pytest.mark.parametrize(
    "sent",
    [
        b'["deposit",' + b"[" * _DEEP,
        b'["deposit",{"name":' + b"[" * _DEEP + b"]" * _DEEP + b',"amount":1}]',
        b"\x92\xa7deposit" + b"\x91" * _DEEP + b"\x01",
        b"\x92\xa7deposit\x81\xa4name" + b"\x91" * _DEEP + b"\x01",
        b"\x92\xa2\xff\xff\x80",
        b'["\xff\xff",{}]',
        b"\x92\xa7deposit\x82\xa4name\xa1\xff\xa6amount\x01",
        b'["' + b"\\u0001" * 10_000 + b'",{}]',
    ],
)
def test_what_is_sent_to_break_a_service_is_a_wrong_call_and_no_failure_of_the_machine(sent: bytes) -> None:
    bank = Bank()
    for reply in (bank.decide(sent, 1, 0).reply, bank.query(sent, 0)):
        assert b"InvalidCommandError" in reply
        assert len(reply) <= REPLY_BYTES_MAX


@given(st.binary(max_size=40), st.integers(0, 60), st.booleans())
def test_no_bytes_make_a_service_fail(noise: bytes, place: int, is_json: bool) -> None:
    call = b'["deposit",{"name":"ann","amount":1}]' if is_json else rsm.encode_call(Bank.deposit, "ann", 1)
    for sent in (noise, call[:place] + noise + call[place + len(noise) :]):
        decision = Bank().decide(sent, 1, 0)
        assert decision.reply
        Bank().query(sent, 0)


def test_a_reply_of_another_type_is_refused_in_words_before_it_is_logged() -> None:
    outbox = MachineHarness(Outbox())
    with pytest.raises(TypeError, match=r"lie\(\) -> int: its reply is 'five', which is not of that type"):
        outbox.call(Outbox.lie)
    with pytest.raises(ValueError, match=r"echo\(.*\) -> str: its reply has 5004 bytes, a reply at most 4096"):
        outbox.call(Outbox.echo, "x" * 5_000)
    assert outbox.rows("letters") == {}


def test_an_error_that_is_larger_than_a_reply_is_refused_by_name() -> None:
    outbox, shelf = MachineHarness(Outbox()), "x" * 5_000
    for _ in range(3):
        outbox.call(Outbox.post, "text", shelf=shelf)
    with pytest.raises(
        ValueError, match=r"ShelfFull: this error has 50\d\d bytes, a reply at most 4096: let it say less"
    ):
        outbox.call(Outbox.post, "text", shelf=shelf)
    assert len(outbox.rows("letters")) == 3


def test_a_query_changes_nothing() -> None:
    with pytest.raises(RuntimeError, match="table 'letters': put: only a command that is executed changes rows"):
        MachineHarness(Outbox()).call(Outbox.change)


def test_a_command_outside_of_a_service_says_who_executes_it() -> None:
    with pytest.raises(RuntimeError, match="a command is executed by its service"):
        Bank().transfer("ann", "bob", 5)


def test_rows_with_a_key_of_two_columns_are_read_in_its_order() -> None:
    outbox = MachineHarness(Outbox())
    for shelf in "bab":
        outbox.call(Outbox.post, "hello", shelf=shelf)
    kept = outbox.call(Outbox.texts)
    assert [(one.shelf, one.number, one.sender) for one in kept] == [("a", 1, None), ("b", 1, None), ("b", 2, None)]
    assert isinstance(kept[0], Letter)
    assert outbox.call(Outbox.post_and_burn) == (3, 3)
    assert outbox.call(Outbox.burn, "b", 1)
    assert not outbox.call(Outbox.burn, "b", 1)
    assert outbox.rows("letters") == {("a", 1): ("hello", None), ("b", 2): ("hello", None)}


def test_a_command_of_a_composition_is_atomic_over_its_parts() -> None:
    shop = MachineHarness(Shop())
    shop.call(Shop.bank.deposit, "ann", 5)
    paid = shop.execute(rsm.encode_call(Shop.pay, "ann", 2))
    assert [record.name for record in paid.records] == [
        "outbox.letters_written", "bank.accounts_written", "bank.accounts_written",
    ]  # fmt: skip
    with pytest.raises(InsufficientFunds):
        shop.call(Shop.pay, "ann", 4)
    assert shop.call(Shop.try_to_pay, "ann", 4) is False
    assert shop.call(Shop.bank.balance, "ann") == 3
    assert [one.text for one in shop.call(Shop.outbox.texts)] == ["ann pays 2"]
    shop.call(Shop.outbox.post, "b")
    shop.call(Shop.outbox.post, "c")
    with pytest.raises(ShelfFull) as caught:
        shop.call(Shop.pay, "ann", 1)
    assert (caught.value.shelf, caught.value.room) == ("a", 0)


def test_parts_have_tables_records_and_versions_of_their_own() -> None:
    described = Shop.description
    assert (described.name, described.version) == ("shop", 5)
    assert [table.name for table in described.tables] == ["bank.accounts", "outbox.letters"]
    assert [record.type for record in described.records] == [272, 273, 528, 529]
    both = rsm.compose("shop", bank=Bank, outbox=Outbox)
    assert both.description.tables == described.tables
    with pytest.raises(InvalidDescriptionError, match="has parts .bank, outbox.: a part has no parts of its own"):
        rsm.compose("mall", shop=Shop)


def test_a_next_version_of_a_part_is_a_next_version_of_the_whole() -> None:
    class NextAccount(msgspec.Struct):
        name: str
        balance: int = 0
        email: str | None = None

    class NextBank(rsm.Service, name="bank", version=2):
        accounts = rsm.table(NextAccount)

        @rsm.command
        def rename(self, name: str, email: str) -> str:
            account = self.accounts.get(name)
            assert account is not None
            assert account.email is None
            account.email = email
            self.accounts.put(account)
            return email

    old, new = rsm.compose("shop", bank=Bank), rsm.compose("shop", bank=NextBank)
    shop = MachineHarness(old())
    shop.execute(b'["bank.deposit", {"name": "ann", "amount": 5}]')
    shop.restart(new())
    shop.raise_version()
    assert shop.execute(b'["bank.rename", {"name": "ann", "email": "a@x"}]').reply == b'["a@x"]'
    assert shop.rows("bank.accounts") == {("ann",): (5, "a@x")}


def test_what_a_service_can_be_asked_is_asked_of_it() -> None:
    (said,) = msgspec.json.decode(MachineHarness(Shop()).query(b'["?",{}]'))
    shown: dict[str, Any] = {one["name"]: one for one in said}
    assert shown["pay"]["signature"] == "pay(source: str, amount: int) -> int"
    assert shown["outbox.post"]["signature"] == "outbox.post(text: str, *, shelf: str = 'a') -> int"
    assert shown["bank.balance"]["is_query"]
    assert shown["pay"]["doc"] == "Pay, with a receipt."


def test_typed_services_are_state_machines() -> None:
    deposits, transfers = (
        st.builds(rsm.encode_call, st.just(Bank.deposit), NAMES, AMOUNTS),
        st.builds(rsm.encode_call, st.just(Bank.transfer), NAMES, NAMES, AMOUNTS),
    )
    check_machine(Bank, deposits | transfers, queries=st.builds(rsm.encode_call, st.just(Bank.balance), NAMES))
    pays = st.builds(rsm.encode_call, st.just(Shop.try_to_pay), NAMES, AMOUNTS)
    brings = st.builds(rsm.encode_call, st.just(Shop.bank.deposit), NAMES, AMOUNTS)
    check_machine(Shop, pays | brings)


def test_money_is_neither_made_nor_lost_whatever_fails() -> None:
    def invariant(bank: Bank) -> None:
        assert all(account.balance >= 0 for account in bank.accounts)

    summary = simulate(
        Bank,
        lambda rng: rng.choice(
            [rsm.encode_call(Bank.deposit, "ann", 3), rsm.encode_call(Bank.transfer, "ann", "bob", rng.randint(1, 5))]
        ),
        seeds=2,
        invariant=invariant,
    )
    assert summary.acknowledged > 20


def test_a_call_is_checked_where_it_is_made() -> None:
    with pytest.raises(InvalidCommandError, match=r"transfer\(.*\) -> int: Expected `int`, got `str` - at `\$.amount`"):
        rsm.encode_call(Bank.transfer, "ann", "bob", "five")  # type: ignore[call-overload]
    assert Account("ann") == Account(name="ann", balance=0)


class RichAccount(msgspec.Struct):
    name: str
    balance: int = 0
    is_rich: bool = False


class RichBank(rsm.Service, name="bank", version=2):
    accounts = rsm.table(RichAccount)
    migrations = (rsm.migrate(2, "accounts", lambda row: {"is_rich": row["balance"] > 9}),)


def test_a_service_migrates_its_rows_and_those_of_a_part_are_declared_by_the_whole() -> None:
    harness = MachineHarness(Bank())
    for name, amount in (("ann", 50), ("bob", 5)):
        harness.call(Bank.deposit, name, amount)
    rich = RichBank()
    harness.restart(rich)
    harness.raise_version()
    assert [(account.name, account.is_rich) for account in rich.accounts] == [("ann", True), ("bob", False)]
    with pytest.raises(InvalidDescriptionError, match=r"declare it in Whole too, of table 'bank.accounts'"):

        class Whole(rsm.Service):
            bank = rsm.part(RichBank)


def test_the_bank_of_the_examples_has_twenty_lines() -> None:
    code = ast.parse(Path(examples.bank.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(code):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    code.body = [node for node in code.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    assert len([line for line in ast.unparse(code).splitlines() if line]) == 20


def test_parts_agree_whatever_fails() -> None:
    def invariant(shop: Shop) -> None:
        paid = sum(int(letter.text.rpartition(" ")[2]) for letter in shop.outbox.letters)
        assert paid == shop.bank.balance("shop")

    calls = [rsm.encode_call(Shop.bank.deposit, "ann", 3), rsm.encode_call(Shop.try_to_pay, "ann", 2)]
    summary = simulate(Shop, lambda rng: rng.choice(calls), seeds=2, invariant=invariant)
    assert summary.acknowledged > 20
