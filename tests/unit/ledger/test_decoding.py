"""Decoders of types: the first look into a type by many threads at once."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys, threading, msgspec
from ledger.decoding import convert, json_decoder, msgpack_decoder
sys.setswitchinterval(1e-6)
text, packed = b'{"f3": {"a": 1}}', msgspec.msgpack.encode({"f3": {"a": 1}})
for number in range(200):
    inner = msgspec.defstruct("Inner", [("a", int, 0)])
    kind = msgspec.defstruct(f"Outer{number}", [(f"f{index}", inner | None, None) for index in range(20)])
    barrier, found = threading.Barrier(6), []
    def look(index):
        barrier.wait()
        found.append((
            lambda: json_decoder(kind).decode(text),
            lambda: msgpack_decoder(kind).decode(packed),
            lambda: convert({"f3": {"a": 1}}, kind),
        )[index % 3]())
    threads = [threading.Thread(target=look, args=(index,)) for index in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(found) == 6 and all(one == found[0] and one.f3.a == 1 for one in found)
"""


def test_threads_look_into_a_type_for_the_first_time_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-500:]}"
