"""Archives and names that reach for what is not theirs, beside a pool that goes on."""

from __future__ import annotations

import io
import secrets
import zipfile
from pathlib import Path

import pytest

from broker.machine.statuses import Outcome, TaskStatus
from tests.unit.broker.worker.archives import archive, pool
from tests.unit.broker.worker.listening import run
from tests.unit.broker.worker.served_code import HANDLERS, Served, handlers, pools

_NOT_ITS_OWN = {
    "of the standard library": ({"pool.py": ""}, "pydoc:pipepager", "there is no such module in the archive"),
    "a name of the interpreter": (
        {"pool.py": ""},
        "importlib._bootstrap_external:FileLoader.get_data",
        "what begins with an underscore is private",
    ),
    "imported by it": ({"pool.py": "import os\nfrom os import system"}, "pool:system", "only imports 'system'"),
    "imported with its module": ({"pool.py": "import os"}, "pool:os.system", "only imports 'os.system'"),
    "private": ({"pool.py": "def _f(c, p): ..."}, "pool:_f", "what begins with an underscore is private"),
    "of a folder that another module fills": (
        {"msgpack_like/note.txt": "x", "pool.py": ""},
        "msgpack_like.nothing:f",
        "there is no such module in the archive",
    ),
    "no entry at all": ({"pool.py": ""}, "pool", "expected module:function"),
}


@pytest.mark.parametrize("name", _NOT_ITS_OWN)
@pytest.mark.asyncio
async def test_nothing_but_a_pools_own_functions_is_called_though_it_declares_them(name: str, tmp_path: Path) -> None:
    files, mode, why = _NOT_ITS_OWN[name]
    served = Served()
    served.archives = {"one": pool(dict(files), mode)}
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", b"/etc/hostname", code="one", mode=mode)])
        end = await heard.end_of(1)
        assert (end.status, end.outcome, end.result) == (TaskStatus.ERROR, Outcome.REFUSED, b"")
        assert why in end.error


@pytest.mark.asyncio
async def test_a_function_of_another_module_of_the_pool_may_be_named_where_it_is_imported(tmp_path: Path) -> None:
    served = Served()
    files: dict[str, str | bytes] = {
        "mails/__init__.py": "from mails.send import Mailer, send",
        "mails/send.py": "def send(c, p): return b'1'\nclass Mailer:\n    def run(c, p): return b'2'",
    }
    served.archives = {"one": pool(files, "mails:send", "mails.send:Mailer.run")}
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="one", mode="mails:send"), run(2, "x", code="one", mode="mails.send:Mailer.run")])
        assert [(await heard.end_of(number)).result for number in (1, 2)] == [b"1", b"2"]


def _packed_by_lzma() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as written:
        written.writestr("pool.py", "X = 1\n" * 100)
    return made.getvalue()


_UNREADABLE = {
    "packed by lzma": _packed_by_lzma,
    "a record with a field of 200,000 letters": lambda: archive(
        {"rsm-pool.toml": 'entries = ["p:f"]', "p.py": "", "p-1.dist-info/RECORD": 'p.py,"' + secrets.token_hex(10**5)}
    ),
    "a record that is no text": lambda: archive({"p.py": "", "p-1.dist-info/RECORD": b"\xff\xfe"}),
    "deflated nonsense": lambda: handlers("1").replace(b"\x00", b"\x01", 20),
    "a declaration that is no text": lambda: archive({"p.py": "", "rsm-pool.toml": b"\xff"}),
    "a declaration of nonsense": lambda: archive({"p.py": "", "rsm-pool.toml": "entries = 5"}),
    "a declaration that is too deep": lambda: archive({"p.py": "", "rsm-pool.toml": "a = " + "[" * 20_000}),
    "no declaration": lambda: archive({"p.py": "def f(c, p): ..."}),
}


@pytest.mark.parametrize("name", _UNREADABLE)
@pytest.mark.asyncio
async def test_whatever_cannot_be_unpacked_ends_its_task_with_words_and_another_pool_goes_on(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(100_000)
    served.archives = {"bad": _UNREADABLE[name](), "good": handlers("1")}
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="bad", mode="p:f"), run(2, "x", code="good", mode="handlers:version")])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.REFUSED)
        assert end.error.startswith("Refused: code 'bad': ")
        assert "code 'bad'" in caplog.text
        assert (await heard.end_of(2)).result == b"1"


@pytest.mark.asyncio
async def test_an_error_that_nobody_thought_of_ends_the_task_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr("broker.worker.code.pools.unpack", broken)
    served = Served()
    served.archives = {"one": handlers("1")}
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        end = await heard.end_of(1)
        assert end.error == "CodeUnavailable: code 'one': KeyError: 'nobody thought of this'"
        assert "Traceback" in caplog.text


@pytest.mark.asyncio
async def test_what_is_unpacked_is_bounded_in_all_and_unused_pools_make_room(tmp_path: Path) -> None:
    served = Served(100_000)
    for name in ("one", "two", "three"):
        files: dict[str, str | bytes] = {"handlers.py": HANDLERS.format(version=name), "fill.bin": b"\1" * 500_000}
        served.archives[name] = pool(files, "handlers:version", "handlers:hang")
    async with pools(served, tmp_path, unpacked_bytes_max=1_100_000) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        await heard.end_of(1)
        made.run([run(2, "x", code="two", mode="handlers:hang")])
        await heard.word_of(2)
        made.run([run(3, "x", code="three", mode="handlers:hang")])
        await heard.word_of(3)
        assert sorted(made.codes) == ["three", "two"]
        made.run([run(4, "x", code="one", mode="handlers:version")])
        end = await heard.end_of(4)
        assert end.error.startswith("CodeUnavailable: code 'one': it needs")
        assert sum(file.stat().st_size for file in tmp_path.rglob("fill.bin")) == 1_000_000
