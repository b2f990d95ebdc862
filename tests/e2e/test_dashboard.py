"""The dashboard of a real broker in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from broker.client import BrokerClient, NewTask
from ledger.dev import DevCluster
from tests.e2e.pages import CHROMIUM, TIMEOUT_MS, WatchedPage, chromium
from tests.integration.broker_processes import brokers
from tests.integration.worker_processes import started

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
]
EVIL = '<img src=x onerror="window.ran = true">'


@pytest.fixture(scope="module")
def url(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("dashboard")
    options = ("--metadata-uri", cluster.metadata_uri, "--log", "dashboard")
    with (
        brokers(folder, "b1", options=options) as (broker,),
        started(
            folder,
            "w1",
            *options,
            "--tasks",
            "tests.e2e.dashboard_tasks",
            "--threads",
            "2",
            "--types",
            "fast,fail,slow",
        ),
    ):
        yield broker.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[BrokerClient]:
    with BrokerClient.connect([url], tenant="acme") as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def dashboard(browser: Browser, url: str) -> Iterator[WatchedPage]:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    yield WatchedPage(page, url)
    page.close()


def test_what_a_tenant_typed_is_shown_as_text_and_runs_nothing(dashboard: WatchedPage, client: BrokerClient) -> None:
    task_id = client.submit(EVIL, f"<script>window.ran = true</script>{EVIL}", slot=EVIL, key=EVIL)
    failed = client.submit("fail", EVIL, max_attempts=1)
    client.wait(failed, timeout_s=60)
    page = dashboard.open("overview")
    expect(page.get_by_role("link", name=EVIL)).to_be_visible()
    for view in (f"tasks/{task_id}", f"tasks/{failed}"):
        page = dashboard.open(view)
        expect(page.locator("aside pre").first).to_contain_text(EVIL)
    expect(page.locator("tbody").get_by_text(EVIL, exact=True).first).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    client.cancel(task_id)
    dashboard.check()


def test_what_happens_is_seen_without_a_reload(dashboard: WatchedPage, client: BrokerClient) -> None:
    page = dashboard.open("tasks")
    expect(page.locator("#live-text")).to_have_text("live")
    page.evaluate("window.same = true")
    task_id = client.submit("fast", "hello")
    row = page.locator(f'tr[data-key="{task_id}"]')
    expect(row).to_contain_text("finished")
    assert page.evaluate("window.same") is True
    dashboard.check()


def test_a_stream_that_broke_is_taken_up_again(dashboard: WatchedPage, client: BrokerClient) -> None:
    page = dashboard.open("tasks")
    expect(page.locator("#live-text")).to_have_text("live")
    page.context.set_offline(True)
    expect(page.locator("#live-text")).to_have_text("reconnecting")
    task_id = client.submit("fast", "meanwhile")
    page.context.set_offline(False)
    expect(page.locator("#live-text")).to_have_text("live")
    expect(page.locator(f'tr[data-key="{task_id}"]')).to_contain_text("finished")
    dashboard.check(is_network_expected=True)


def test_a_weight_is_changed_where_it_stands_and_holds_at_the_broker(
    dashboard: WatchedPage, client: BrokerClient
) -> None:
    client.change_tenant("acme", weight=1, running_max=7)
    page = dashboard.open("tenants")
    page.get_by_role("button", name="Weight of acme: 1. Change it").click()
    page.keyboard.type("4.5")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Weight of acme: 4.5. Change it")).to_be_visible()
    policy = client.tenant("acme").policy
    assert (policy.weight, policy.running_max) == (4.5, 7)
    client.change_tenant("acme", weight=2)
    expect(page.get_by_role("button", name="Weight of acme: 2. Change it")).to_be_visible()
    dashboard.check()


def test_a_tenant_is_paused_and_the_task_says_why_it_waits(dashboard: WatchedPage, client: BrokerClient) -> None:
    client.change_tenant("acme", weight=2)
    page = dashboard.open("tenants")
    page.get_by_role("button", name="Pause acme").click()
    expect(page.get_by_role("button", name="Resume acme")).to_be_visible()
    task_id = client.submit("fast", "held")
    page = dashboard.open(f"tasks/{task_id}")
    expect(page.locator("aside")).to_contain_text("Why it is waiting")
    expect(page.locator("aside")).to_contain_text("acme")
    page = dashboard.open("limits")
    page.get_by_role("button", name="Resume tenant acme, type any, key any").click()
    expect(page.get_by_text("Nothing is held")).to_be_visible()
    client.wait(task_id, timeout_s=60)
    dashboard.check()


def test_a_running_task_is_cancelled_after_a_question(dashboard: WatchedPage, client: BrokerClient) -> None:
    task_id = client.submit("slow")
    page = dashboard.open(f"tasks/{task_id}")
    expect(page.locator("aside")).to_contain_text("half way, nearly")
    page.locator("aside").get_by_role("button", name="Cancel task").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel task").click()
    expect(page.locator(".panel-head")).to_contain_text("cancelled")
    dashboard.check()


def test_the_keyboard_is_enough(dashboard: WatchedPage, client: BrokerClient) -> None:
    ids = client.submit_many([NewTask("fast", "a"), NewTask("fast", "b"), NewTask("fast", "c")]).task_ids
    page = dashboard.open("overview")
    page.keyboard.press("3")
    expect(page.locator(f'tr[data-key="{ids[2]}"]')).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("type:fast status:finished")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("status%3Afinished"))
    expect(page.locator(f'tr[data-key="{ids[0]}"]')).to_contain_text("finished")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.dataset.key") == str(ids[1])
    page.keyboard.press("Enter")
    expect(page.locator("aside h2")).to_have_text(f"Task {ids[1]}")
    page.keyboard.press("Escape")
    expect(page.locator("aside")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.key") == str(ids[1])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Next and previous page")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    dashboard.check()


def test_a_row_keeps_the_focus_while_others_come_and_go(dashboard: WatchedPage, client: BrokerClient) -> None:
    ids = client.submit_many([NewTask("calm", delay_s=3600)] * 4).task_ids
    page = dashboard.open("tasks?q=status:delayed type:calm")
    expect(page.locator(f'tr[data-key="{ids[0]}"]')).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    client.cancel(ids[3])
    added = client.submit("calm", delay_s=3600)
    expect(page.locator(f'tr[data-key="{ids[3]}"]')).to_have_count(0)
    expect(page.locator(f'tr[data-key="{added}"]')).to_be_visible()
    assert page.evaluate("document.activeElement.dataset.key") == str(ids[2])
    client.cancel(*ids[:3], added)
    dashboard.check()


def test_the_way_past_the_bar_is_the_first_stop_of_tab(dashboard: WatchedPage) -> None:
    page = dashboard.open("workers")
    expect(page.locator("tbody")).to_contain_text("w1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    expect(page).to_have_url(re.compile("#/workers$"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Filter workers"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.key") == "w1"
    dashboard.check()


def test_tasks_come_in_pages(dashboard: WatchedPage, client: BrokerClient) -> None:
    ids = client.submit_many([NewTask("idle", delay_s=3600)] * 60).task_ids
    page = dashboard.open("tasks?q=type:idle")
    first, last = page.locator(f'tr[data-key="{ids[0]}"]'), page.locator(f'tr[data-key="{ids[-1]}"]')
    expect(last).to_be_visible()
    expect(first).to_have_count(0)
    page.keyboard.press("n")
    expect(first).to_be_visible()
    expect(last).to_have_count(0)
    page.get_by_role("button", name="Newer").click()
    expect(last).to_be_visible()
    client.cancel(*ids)
    dashboard.check()


def test_light_and_dark_follow_the_system_until_one_is_chosen(browser: Browser, url: str) -> None:
    context = browser.new_context(color_scheme="dark")
    dashboard = WatchedPage(context.new_page(), url)
    page = dashboard.open()
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(colour)
    assert light != dark
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate(colour) == dark
    page.reload()
    assert page.evaluate(colour) == dark
    dashboard.check()
    context.close()


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_nothing_is_wider_than_the_screen(browser: Browser, url: str, client: BrokerClient, width: int) -> None:
    task_id = client.submit("fast", "x" * 2_000)
    page = browser.new_page(viewport={"width": width, "height": 800})
    dashboard = WatchedPage(page, url)
    for view in ("overview", "tenants", "tasks", "workers", "limits", f"tasks/{task_id}"):
        dashboard.open(view)
        expect(page.locator(".is-loading")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    dashboard.check()
    page.close()


def test_a_token_is_asked_for_and_kept_in_the_tab_alone(browser: Browser, cluster: DevCluster, tmp_path: Path) -> None:
    token = "0123456789abcdef-tenant"
    tokens = tmp_path / "tokens.toml"
    digest = hashlib.sha256(token.encode()).hexdigest()
    tokens.write_text(f'[[token]]\nname = "t"\nsha256 = "{digest}"\nrole = "tenant"\ntenant = "acme"\n')
    options = ("--metadata-uri", cluster.metadata_uri, "--log", "guarded", "--tokens-file", str(tokens))
    with brokers(tmp_path, "g1", options=options) as (broker,):
        with BrokerClient.connect([broker.url], token=token) as client:
            client.submit("mine", "x")
        context = browser.new_context()
        dashboard = WatchedPage(context.new_page(), broker.url)
        page = dashboard.open("tasks")
        page.get_by_role("dialog", name="Token").get_by_role("textbox").fill(token)
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("tbody tr").first).to_contain_text("mine")
        expect(page.locator("#live-text")).to_have_text("live")
        assert page.evaluate("Object.values(sessionStorage)") == [token]
        assert page.evaluate("Object.values(localStorage)") == []
        assert context.cookies() == []
        page.keyboard.press("4")
        expect(page.get_by_text("only an administrator sees them")).to_be_visible()
        dashboard.check(is_network_expected=True)
        context.close()
