"""The dashboard's files: plain, whole, and without a way to make markup of text."""

from __future__ import annotations

import re

import pytest

from broker.web.files import STATIC_HEADERS, static_files

_FILES = {path: file.content.decode() for path, file in static_files().items()}
_SCRIPTS = {path: text for path, text in _FILES.items() if path.endswith(".js")}
_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment"
    r"|srcdoc|setHTML|javascript:"
)


def test_everything_that_is_loaded_is_there() -> None:
    for path, text in _FILES.items():
        for name in re.findall(r"""(?:from|import)\s+"\./([\w.-]+)"|(?:src|href)="static/([\w.-]+)\"""", text):
            assert f"/static/{name[0] or name[1]}" in _FILES, path


def test_nothing_comes_from_anywhere_else() -> None:
    for path, text in _FILES.items():
        addresses = set(re.findall(r"https?://[\w./-]+|url\([^)]*\)|@import", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path


@pytest.mark.parametrize("path", sorted(_SCRIPTS))
def test_no_script_can_make_markup_of_text(path: str) -> None:
    assert _MARKUP.search(_SCRIPTS[path]) is None


def test_the_page_has_nothing_inline() -> None:
    page = _FILES["/"]
    assert re.search(r"<style|\sstyle=|\son\w+=", page) is None
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []


def test_the_policy_allows_the_own_origin_and_nothing_inline() -> None:
    policy = STATIC_HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy


def test_a_file_has_another_etag_than_any_other() -> None:
    etags = [file.etag for file in static_files().values()]
    assert len(set(etags)) == len(etags)
