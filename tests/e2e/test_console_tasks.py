"""Single tasks in the console, in a real browser: each caller sees and does what its own token may at the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from broker.client import BrokerClient, NewTask
from ledger.dev import DevCluster
from tests.e2e.pages import CHROMIUM, TIMEOUT_MS, WatchedPage, chromium, enter_token, write_principals
from tests.integration.broker_processes import BrokerProcess, brokers
from tests.integration.consoles import ConsoleProcess, console

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
]
_AWAY = 503
EVIL = '<img src=x onerror="window.ran = true">'
SECRETS = {"auditor": "a" * 40, "acme": "t" * 40, "bolt": "b" * 40, "root": "r" * 40}
_ROLES = {"auditor": 'role = "auditor"', "root": 'role = "operator"'}


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        expect.set_options(timeout=TIMEOUT_MS)
        yield browser


class Letters:
    """A console and a broker that know the same callers, and dead letters of two tenants."""

    def __init__(self, shown: ConsoleProcess, broker: BrokerProcess, audit: Path) -> None:
        self.shown = shown
        self.broker = broker
        self.audit = audit
        self.of_acme = self._die("acme", 3)
        self.of_bolt = self._die("bolt", 1)

    def client(self, name: str) -> BrokerClient:
        return BrokerClient.connect([self.broker.url], token=SECRETS[name])

    def _die(self, tenant: str, count: int) -> list[int]:
        with self.client(tenant) as client:
            ids = client.submit_many([NewTask("mail", EVIL, ttl_s=0.001)] * count).task_ids
            for task_id in ids:
                assert client.wait(task_id, timeout_s=60).status == "error"
            return ids

    def status(self, tenant: str, task_id: int) -> str:
        with self.client(tenant) as client:
            return client.get(task_id).status

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@pytest.fixture
def letters(cluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Letters]:
    entries = {
        name: (secret, _ROLES.get(name, f'role = "tenant"\ntenant = "{name}"')) for name, secret in SECRETS.items()
    }
    file = str(write_principals(tmp_path, entries))
    own = tmp_path / "own.token"
    own.write_text(SECRETS["auditor"])
    for name in ("RSM_BROKER_TOKEN_FILE", "RSM_STORE__TOKEN_FILE"):
        monkeypatch.setenv(name, str(own))
    audit = tmp_path / "audit.jsonl"
    options = ("--metadata-uri", cluster.metadata_uri, "--log", "letters", "--principals", file)
    with (
        brokers(tmp_path, "broker-1", options=options) as (broker,),
        console(cluster.metadata_uri, "--principals", file, "--audit-file", str(audit)) as shown,
    ):
        yield Letters(shown, broker, audit)


def test_dead_letters_are_run_again_and_deleted_by_who_may_and_nobody_touches_anothers(
    browser: Browser, letters: Letters
) -> None:
    context = browser.new_context()
    page = WatchedPage(context.new_page(), letters.shown.url)
    opened = page.open("tasks/letters?q=status:error")
    enter_token(opened, SECRETS["auditor"])
    table = opened.get_by_role("table", name="Tasks, newest first")
    expect(table.locator("tbody tr[tabindex]")).to_have_count(4)
    assert opened.get_by_role("checkbox").count() == 0
    expect(opened.get_by_role("group", name="Dead letters")).to_be_hidden()
    victim = letters.of_acme[0]
    page.open(f"tasks/letters/{victim}?q=status:error")
    expect(opened.locator("aside")).to_contain_text("its deadline passed")
    assert opened.locator("aside .actions").get_by_role("button").count() == 0
    for action in ("dead-letters/delete", "dead-letters/replay", "tasks/cancel"):
        assert _post(opened, action, SECRETS["auditor"], letters.of_acme) == 403
    assert _post(opened, "dead-letters/delete", "", letters.of_acme) == 401

    opened.get_by_role("button", name="Token").click()
    enter_token(opened, SECRETS["acme"])
    expect(opened.get_by_role("navigation", name="Views").get_by_role("link")).to_have_text(["Tasks"])
    expect(opened.locator("#role")).to_have_text("tenant acme")
    page.open("overview")
    own = opened.get_by_role("region", name="letters")
    expect(own.get_by_role("link", name="Its tasks, one by one")).to_be_visible()
    page.open("tasks/letters?q=status:error")
    expect(table.locator("tbody tr[tabindex]")).to_have_count(3)
    assert _post(opened, "dead-letters/delete", SECRETS["acme"], letters.of_bolt) == 200, "it is passed over"
    first, second, third = letters.of_acme
    for task_id in (first, second):
        opened.get_by_role("checkbox", name=f"Choose task {task_id}").check()
    bulk = opened.get_by_role("group", name="Dead letters")
    expect(bulk).to_contain_text("2 chosen")
    bulk.get_by_role("button", name="Delete").click()
    opened.get_by_role("dialog").get_by_role("button", name="Not now").click()
    assert letters.status("acme", first) == "error", "nothing is done without a yes"
    bulk.get_by_role("button", name="Delete").click()
    opened.get_by_role("dialog", name="Delete 2 tasks?").get_by_role("button", name="Delete").click()
    expect(opened.locator("#toasts")).to_contain_text("2 deleted")
    expect(table.locator("tbody tr[tabindex]")).to_have_count(1)
    opened.keyboard.press("j")
    opened.keyboard.press("x")
    bulk.get_by_role("button", name="Run again").click()
    opened.get_by_role("dialog", name=f"Run task {third} again?").get_by_role("button", name="Run again").click()
    expect(table.locator("tbody tr[tabindex]")).to_have_count(0)
    assert letters.status("acme", third) == "waiting"
    assert letters.status("bolt", letters.of_bolt[0]) == "error", "another's letter is as it was"
    page.open(f"tasks/letters/{third}")
    opened.locator("aside").get_by_role("button", name="Cancel task").click()
    opened.get_by_role("dialog").get_by_role("button", name="Cancel task").click()
    expect(opened.locator("aside .pill")).to_have_text("cancelled")
    page.check(is_network_expected=True)
    context.close()

    told = {(line["principal"], line["action"], line["target"], line["outcome"]) for line in letters.audited()}
    base = "POST /api/v1/brokers/{log}/"
    assert ("acme", f"{base}dead-letters/delete", f"log letters, tasks {first}, {second}", "200") in told
    assert ("acme", f"{base}dead-letters/replay", f"log letters, tasks {third}", "200") in told
    assert any(who == "auditor" and outcome == "refused (not-allowed)" for who, _, _, outcome in told)
    assert not any(secret in letters.audit.read_text() for secret in SECRETS.values())


def _post(opened: Page, action: str, secret: str, task_ids: list[int]) -> int:
    """Send what a page's button sends, with another token."""
    script = """async ([path, token, body]) => {
        const headers = {"Content-Type": "application/json", ...(token ? {Authorization: `Bearer ${token}`} : {})};
        return (await fetch(path, {method: "POST", body: JSON.stringify(body), headers})).status;
    }"""
    for _ in range(60):
        status: int = opened.evaluate(script, [f"api/v1/brokers/letters/{action}", secret, {"task_ids": task_ids}])
        if status != _AWAY:
            break
        opened.wait_for_timeout(1_000)  # The broker is away for a moment, on a machine that has much to do.
    return status
