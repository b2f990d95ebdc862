"""Pages in Debian's Chromium, driven by Playwright: the broker's dashboard, the console."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium's own words for an answer of 4xx and for a connection that is gone, where a test wants them.
NETWORK = re.compile(r"Failed to load resource")
TIMEOUT_MS = 60_000


class WatchedPage:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        page.on("console", lambda said: self.errors.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation',"
            " (event) => window.violations.push(event.violatedDirective + ' ' + event.blockedURI));"
        )

    def open(self, view: str = "overview") -> Page:
        self.page.goto(f"{self.url}/#/{view}")
        return self.page

    def check(self, *, is_network_expected: bool = False) -> None:
        errors = [error for error in self.errors if not (is_network_expected and NETWORK.search(error))]
        assert errors == []
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("window.ran") is None


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Tests may run as root in a container, where Chromium's sandbox does not start.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def write_principals(folder: Path, entries: dict[str, tuple[str, str]]) -> Path:
    """Write who may do what: secret and role by name."""
    text = ""
    for name, (secret, role) in entries.items():
        digest = hashlib.sha256(secret.encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\n{role}\ntokens = ["{digest}"]\n'
    file = folder / "principals.toml"
    file.write_text(text)
    return file


def enter_token(opened: Page, secret: str) -> None:
    """Answer the page that asks who it is."""
    opened.get_by_role("dialog", name="Token").get_by_role("textbox").fill(secret)
    opened.get_by_role("button", name="Use it").click()
