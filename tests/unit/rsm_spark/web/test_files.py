"""Files of the broker's dashboard and of the console: plain, whole, and without a way to make markup of text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import broker.api.web
import rsm_spark.console
from rsm_spark.web.files import STATIC_HEADERS, web_files

_PAGES = {
    name: web_files(Path(package.__path__[0]) / "static")
    for name, package in (("broker", broker.api.web), ("console", rsm_spark.console))
}
_FILES = {(page, path): file.content.decode() for page, files in _PAGES.items() for path, file in files.items()}
_SCRIPTS = {path: text for path, text in _FILES.items() if path[1].endswith(".js")}
_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment"
    r"|srcdoc|setHTML|javascript:"
)


def test_everything_that_is_loaded_is_there() -> None:
    for (page, path), text in _FILES.items():
        for name in re.findall(r"""(?:from|import)\s+"\./([\w.-]+)"|(?:src|href)="static/([\w.-]+)\"""", text):
            assert (page, f"/static/{name[0] or name[1]}") in _FILES, (page, path)


def test_nothing_comes_from_anywhere_else() -> None:
    for path, text in _FILES.items():
        addresses = set(re.findall(r"https?://[\w./-]+|url\([^)]*\)|@import", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path


@pytest.mark.parametrize("path", sorted(_SCRIPTS))
def test_no_script_can_make_markup_of_text(path: tuple[str, str]) -> None:
    assert _MARKUP.search(_SCRIPTS[path]) is None


@pytest.mark.parametrize("name", _PAGES)
def test_a_page_has_nothing_inline(name: str) -> None:
    page = _FILES[name, "/"]
    assert re.search(r"<style|\sstyle=|\son\w+=", page) is None
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []


def test_the_policy_allows_the_own_origin_and_nothing_inline() -> None:
    policy = STATIC_HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("text", "grounds"),
    [
        ("text", "page surface surface-sunken hover chosen calm-soft"),
        ("text-quiet", "page surface surface-sunken hover chosen calm-soft"),
        ("accent", "page surface accent-soft"),
        ("accent-text", "accent"),
        ("good", "good-soft surface"),
        ("warn", "warn-soft"),
        ("bad", "bad-soft surface surface-sunken"),
        ("busy", "busy-soft"),
    ],
)
def test_text_stands_out_in_light_and_in_dark(text: str, grounds: str) -> None:
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", _FILES["console", "/static/tokens.css"])
    colours = {name: (light, dark) for name, light, dark in found}
    for ground in grounds.split():
        for one, other in zip(colours[text], colours[ground], strict=True):
            low, high = sorted((_luminance(one), _luminance(other)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_a_file_has_another_etag_than_any_other() -> None:
    for files in _PAGES.values():
        etags = [file.etag for file in files.values()]
        assert len(set(etags)) == len(etags)


def test_pages_share_their_parts_and_have_their_own_files() -> None:
    broker_files, console_files = _PAGES["broker"], _PAGES["console"]
    assert broker_files["/static/widgets.js"] == console_files["/static/widgets.js"]
    assert broker_files["/static/app.js"] != console_files["/static/app.js"]
    assert "/static/tenants.js" not in console_files


def test_a_browser_that_has_a_file_is_told_so() -> None:
    file = _PAGES["console"]["/"]
    assert (file.reply(b"").status, file.reply(b'"other"').body) == (200, file.content)
    again = file.reply(f'"other", W/{file.etag}'.encode())
    assert (again.status, again.body) == (304, b"")
