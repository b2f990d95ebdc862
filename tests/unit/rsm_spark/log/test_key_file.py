"""The key file: for its owner alone, whole or not there, re-read when it changes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ledger.errors import UsageError
from rsm_spark.log.key_file import KeyFile, new_key, public_file, read_key_file, read_public_keys, write_key_file
from rsm_spark.log.signatures import verify_signature


def test_a_new_file_is_for_its_owner_and_never_takes_anothers_place(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "log.key"
    key = new_key()
    write_key_file(path, [key], replace=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert read_key_file(path) == (key,)
    with pytest.raises(UsageError, match="there already"):
        write_key_file(path, [new_key()], replace=False)
    assert [entry.name for entry in path.parent.iterdir()] == ["log.key"]
    assert key.secret not in repr(key)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.key"
    write_key_file(path, [new_key()], replace=False)
    for mode in (0o644, 0o620, 0o604):
        path.chmod(mode)
        with pytest.raises(UsageError, match=f"mode {mode:04o} lets others read it: chmod 600"):
            KeyFile.read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give a file away")
def test_the_group_of_a_file_of_root_may_read_it_as_secrets_of_kubernetes_are_given(tmp_path: Path) -> None:
    path = tmp_path / "log.key"
    write_key_file(path, [key := new_key()], replace=False)
    path.chmod(0o440)
    assert read_key_file(path) == (key,)
    os.chown(path, 10001, 10001)
    with pytest.raises(UsageError, match="mode 0440 lets others read it"):
        read_key_file(path)


def test_a_damaged_file_says_what_is_wrong_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "log.key"
    key = new_key()
    write_key_file(path, [key], replace=False)
    good = json.loads(path.read_text())
    for change, said in (
        ({"format": 9}, "format 9"),
        ({"keys": []}, "it holds no key"),
        ({"keys": good["keys"] * 2}, "there twice"),
        ({"keys": [{**good["keys"][0], "secret": "00" * 32}]}, "not the one that this id was made from"),
        ({"keys": [{**good["keys"][0], "secret": "0"}]}, "expected 64 hex digits"),
        ({"keys": [{**good["keys"][0], "surplus": 1}]}, "surplus"),
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(UsageError, match=said) as caught:
            KeyFile.read(path)
        assert key.secret not in str(caught.value)


def test_a_rotated_file_is_taken_up_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "log.key"
    first, second = new_key(), new_key()
    write_key_file(path, [first], replace=False)
    ring = KeyFile.read(path)
    assert not ring.refresh()
    write_key_file(path, [first, second], replace=True)
    assert ring.refresh()
    assert (ring.ids, ring.newest.key_id) == ((first.id, second.id), second.id)
    path.write_text("{")
    assert not ring.refresh()
    assert ring.ids == (first.id, second.id)
    assert "log.key" in ring.failure
    path.unlink()
    assert not ring.refresh()


def test_public_keys_verify_what_the_private_ones_sign_and_a_readers_file_signs_nothing(tmp_path: Path) -> None:
    path, public = tmp_path / "log.key", tmp_path / "log.pub"
    first, second = new_key(), new_key()
    write_key_file(path, [first, second], replace=False)
    public.write_bytes(public_file(read_key_file(path)))
    assert first.secret not in public.read_text()
    assert first.private not in public.read_text()
    keys = read_public_keys(public)
    assert set(keys) == {first.id, second.id}
    sign = KeyFile.read(path).newest.sign
    assert sign is not None
    signature = sign(b"said")
    assert verify_signature(keys[second.id], signature, b"said")
    assert not verify_signature(keys[second.id], signature, b"said otherwise")
    assert not verify_signature(keys[first.id], signature, b"said")
    text = path.read_text().replace(f'"private": "{second.private}"', '"private": ""')
    path.write_text(text)
    assert KeyFile.read(path).newest.sign is None
