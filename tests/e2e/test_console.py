"""The console of a real cluster in a real browser: what is wrong is seen without a reload, with cause and command."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from broker.client import BrokerClient
from ledger.client.client import LedgerClient
from ledger.core.placement_rule import ClusterPlacement, PlacementRule
from ledger.dev import DevCluster
from ledger.replication.audit_records import AuditLook, AuditRecord, AuditRecords
from ledger.wire.underreplication import audit_path
from ledger.zookeeper.placement_rules import write_placement
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.logs.namespace import Logs
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.sql.client.blocking import BlockingSqlClient
from tests.e2e.pages import CHROMIUM, TIMEOUT_MS, WatchedPage, chromium, enter_token, write_principals
from tests.integration.broker_processes import brokers
from tests.integration.consoles import ConsoleProcess, console
from tests.integration.store_processes import stores
from tests.integration.worker_processes import started

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
]
EVIL = '<img src=x onerror="window.ran = true">'


@pytest.fixture(scope="module")
def shown(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of a cluster with a map of two replicas, a plain log, and a follower that has read nothing."""
    folder = tmp_path_factory.mktemp("console")
    with (
        stores(cluster.metadata_uri, "orders", folder) as replicas,
        stores(cluster.metadata_uri, "shop", folder / "shop") as tables,
    ):
        (folder / "shop").mkdir()
        tables.start("t", command=("rsm_spark", "sql", "serve"))
        with BlockingSqlClient.connect("shop", cluster.metadata_uri) as sql:
            sql.execute("CREATE TABLE item (name TEXT, stock INTEGER)")
            sql.execute("INSERT INTO item VALUES (?, 3)", (EVIL,))
        replicas.start("a")
        replicas.start("b")
        with BlockingMapClient.connect("orders", cluster.metadata_uri) as client:
            for number in range(5):
                client.put(b"key-%d" % number, b"value")
        with ThreadPoolExecutor(1) as thread:  # Playwright's loop runs in this one.
            thread.submit(lambda: asyncio.run(_add_logs(cluster.metadata_uri))).result()
        with (
            brokers(folder, "broker-1", options=("--metadata-uri", cluster.metadata_uri, "--log", "errands")),
            console(cluster.metadata_uri, "--data-dir", str(folder / "history")) as one,
        ):
            yield one


async def _add_logs(uri: str) -> None:
    client = await LedgerClient.connect(uri)
    try:
        logs = Logs(client)
        await logs.create("clicks")
        async with await logs.open_writer("clicks") as writer:
            await writer.append(b"one")
        chain, _ = await ChainStore(client.store, "orders").read()
        await LogConsumers(client.store, chain.log_id).register("orders", EVIL, 0, what=EVIL)
    finally:
        await client.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, shown: ConsoleProcess) -> Iterator[WatchedPage]:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    yield WatchedPage(page, shown.url)
    page.close()


def _tile(page: Page, title: str) -> str:
    return page.locator(".tile").filter(has_text=title).locator(".tile-value").inner_text()


def test_the_overview_tells_how_the_cluster_is(page: WatchedPage) -> None:
    opened = page.open("overview")
    expect(opened.locator(".tile").filter(has_text="Bookies that serve")).to_contain_text("3 of 3")
    expect(opened.locator(".tile").filter(has_text="Logs with a leader")).to_contain_text("3 of 3")
    assert _tile(opened, "Ledgers that lack copies") == "0"
    machines = opened.get_by_role("table", name="Machines")
    expect(machines).to_contain_text("127.0.0.1")
    expect(machines).to_contain_text("orders (")
    warning = opened.get_by_role("region", name="Warnings").get_by_role("listitem")
    expect(warning).to_contain_text("nobody looks for lost copies")
    expect(warning.locator("code")).to_have_text("rsm autorecovery run")
    page.check()


def test_a_log_is_shown_in_full_and_what_others_typed_is_text(page: WatchedPage) -> None:
    opened = page.open("logs")
    opened.get_by_role("table", name="Logs").get_by_text("orders", exact=True).click()
    panel = opened.locator("aside")
    expect(panel.get_by_role("heading", name="orders")).to_be_focused()
    for said in ("leader", "follower", "the first leader", "Who led it", "ledgers may be trimmed now", EVIL):
        expect(panel).to_contain_text(said)
    expect(panel.get_by_role("table", name="Ledgers, newest first")).to_contain_text("is written")
    opened.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(opened.locator('tr[data-key="clicks"]')).to_contain_text("plain log")
    expect(opened.locator('tr[data-key="clicks"]')).to_contain_text("idle")
    opened = page.open("followers")
    expect(opened.locator("tbody").get_by_text(EVIL, exact=True).first).to_be_visible()
    assert opened.locator("main img, main script").count() == 0
    page.check()


def test_a_lost_bookie_is_seen_without_a_reload_and_so_is_its_return(
    page: WatchedPage, whole_cluster: DevCluster
) -> None:
    opened = page.open("copies")
    expect(opened.locator("#live-text")).to_have_text("live")
    expect(opened.get_by_text("No ledger lacks a copy")).to_be_visible()
    opened.evaluate("window.same = true")
    whole_cluster.kill_bookie(2)
    warnings = opened.get_by_role("region", name="Warnings")
    expect(warnings).to_contain_text("copies are missing")
    expect(warnings).to_contain_text("1 bookie does not serve")
    expect(warnings.get_by_role("alert").first).to_contain_text("missing")
    expect(opened.get_by_role("table", name="Ledgers that lack copies").locator("tbody tr").first).to_contain_text(
        "nobody"
    )
    warnings.get_by_role("link", name="Show bookies").click()
    gone = opened.locator("tbody tr").filter(has_text="missing")
    expect(gone).to_contain_text("does not serve")
    whole_cluster.start_bookie(2)
    expect(gone).to_have_count(0)
    expect(warnings).not_to_contain_text("bookie does not serve")
    assert opened.evaluate("window.same") is True
    page.check()


def test_tasks_that_nobody_serves_are_shouted_about_until_a_worker_comes(
    page: WatchedPage, shown: ConsoleProcess, cluster: DevCluster, tmp_path: Path
) -> None:
    url = next(log["url"] for log in shown.view()["logs"] if log["log"] == "errands")
    with BrokerClient.connect([url], tenant="acme") as client:
        task_id = client.submit("fast", "x")
        opened = page.open("tasks")
        card = opened.get_by_role("region", name="errands")
        expect(card.get_by_role("table")).to_contain_text("by nobody")
        warnings = opened.get_by_role("region", name="Warnings")
        expect(warnings).to_contain_text("1 tasks of type fast wait at the broker of log errands")
        expect(warnings).to_contain_text("rsm worker run --log errands --types fast --tasks MODULE")
        assert card.get_by_role("link", name="Its dashboard").get_attribute("href") == f"{url}/#/tasks"
        options = ("--metadata-uri", cluster.metadata_uri, "--log", "errands", "--tasks", "tests.e2e.dashboard_tasks")
        with started(tmp_path, "w1", *options, "--types", "fast"):
            client.wait(task_id, timeout_s=60)
            expect(warnings).not_to_contain_text("type fast")
            expect(card).to_contain_text("1 workers are connected")
    page.check()


def test_what_a_log_holds_is_looked_into_and_nothing_is_changed(page: WatchedPage) -> None:
    opened = page.open("browse/orders")
    table = opened.get_by_role("table", name="Records")
    expect(table).to_contain_text("key-0")
    expect(table).to_contain_text("leader_started")
    opened.get_by_label("From revision").fill("5")
    opened.get_by_role("button", name="Show", exact=True).click()
    expect(table).not_to_contain_text("leader_started")
    opened.get_by_role("button", name="Keys").click()
    keys = opened.get_by_role("table", name="Keys")
    expect(keys.locator("tbody tr")).to_have_count(5)
    opened.get_by_label("Beginning of the keys").fill("key-3")
    opened.keyboard.press("Enter")
    expect(keys.locator("tbody tr")).to_have_count(1)
    opened.get_by_label("Log", exact=True).select_option("shop")
    opened.get_by_role("button", name="SQL").click()
    result = opened.get_by_role("table", name="Result")
    expect(result).to_contain_text("CREATE TABLE item")
    statement = opened.get_by_label("Statement")
    for sql in ("DELETE FROM item", "UPDATE item SET stock = 0 RETURNING name", "no statement"):
        statement.fill(sql)
        opened.get_by_role("button", name="Run", exact=True).click()
        expect(opened.get_by_role("main").get_by_role("alert")).to_be_visible()
        statement.fill("SELECT name, stock FROM item")
        opened.get_by_role("button", name="Run", exact=True).click()
        expect(result).to_contain_text(EVIL)
        expect(result.get_by_role("cell", name="3", exact=True)).to_be_visible()
        expect(opened.get_by_role("main").get_by_role("alert")).to_be_hidden()
    page.check(is_network_expected=True)


def test_the_keyboard_is_enough(page: WatchedPage) -> None:
    opened = page.open("overview")
    for place, view in enumerate(("bookies", "copies", "logs", "tasks", "followers", "browse", "findings"), 2):
        opened.keyboard.press(str(place))
        expect(opened).to_have_url(re.compile(f"#/{view}$"))
        expect(opened.locator(".is-loading")).to_have_count(0)
    opened.keyboard.press("4")
    expect(opened).to_have_url(re.compile("#/logs$"))
    expect(opened.locator(".is-loading")).to_have_count(0)
    search = opened.get_by_role("searchbox", name="Filter logs")
    expect(search).to_be_visible()
    opened.keyboard.press("/")
    expect(search).to_be_focused()
    opened.keyboard.type("orders")
    expect(opened.locator("tbody tr")).to_have_count(1)
    opened.keyboard.press("Escape")
    opened.keyboard.press("j")
    opened.keyboard.press("Enter")
    expect(opened.locator("aside h2")).to_have_text("orders")
    opened.keyboard.press("Escape")
    assert opened.evaluate("document.activeElement.dataset.key") == "orders"
    opened.keyboard.press("?")
    expect(opened.get_by_role("dialog", name="Keyboard")).to_contain_text("followers")
    opened.keyboard.press("Escape")
    page.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1600, 3840])
def test_nothing_is_wider_than_the_screen(browser: Browser, shown: ConsoleProcess, width: int, scheme: str) -> None:
    opened = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    opened.set_default_timeout(TIMEOUT_MS)
    page = WatchedPage(opened, shown.url)
    for view in (
        "overview",
        "bookies",
        "copies",
        "logs",
        "logs/orders",
        "tasks",
        "followers",
        "browse/orders",
        "browse/shop/sql",
        "findings",
    ):
        page.open(view)
        expect(opened.locator(".is-loading")).to_have_count(0)
        if view == "logs/orders":
            expect(opened.locator("aside")).to_contain_text("Who led it")
        assert opened.evaluate("document.documentElement.scrollWidth") <= width, view
    page.check()
    opened.close()


def test_what_a_screen_reader_is_told(page: WatchedPage) -> None:
    opened = page.open("overview")
    expect(opened.locator(".is-loading")).to_have_count(0)
    chart = opened.get_by_role("img", name=re.compile(r"^Bookies, over the last day\. serve: now 3"))
    expect(chart).to_be_visible()
    for view in ("overview", "bookies", "copies", "logs/orders", "tasks", "followers", "browse/orders", "findings"):
        opened = page.open(view)
        expect(opened.locator(".is-loading")).to_have_count(0)
        unnamed = opened.evaluate(
            "[...document.querySelectorAll('button, a, input, table, [role=img], aside, section')]"
            ".filter((one) => one.checkVisibility() && !(one.ariaLabel || one.textContent.trim()"
            " || one.getAttribute('aria-labelledby'))).map((one) => one.outerHTML)"
        )
        assert unnamed == [], view
        assert opened.locator("h1").count() == 1
    page.check()


def test_a_token_is_asked_for_and_those_without_the_right_are_told(
    browser: Browser, cluster: DevCluster, tmp_path: Path
) -> None:
    secrets = {"auditor": "a" * 40, "worker": "w" * 40}
    roles = {"auditor": 'role = "auditor"', "worker": 'role = "worker"'}
    file = write_principals(tmp_path, {name: (secret, roles[name]) for name, secret in secrets.items()})
    with console(cluster.metadata_uri, "--principals", str(file)) as guarded:
        context = browser.new_context()
        page = WatchedPage(context.new_page(), guarded.url)
        opened = page.open("bookies")
        enter_token(opened, secrets["auditor"])
        expect(opened.locator("tbody tr").first).to_contain_text("writable")
        expect(opened.locator("#live-text")).to_have_text("live")
        assert opened.evaluate("Object.values(sessionStorage)") == [secrets["auditor"]]
        assert opened.evaluate("Object.values(localStorage)") == []
        assert context.cookies() == []
        opened.get_by_role("button", name="Token").click()
        enter_token(opened, secrets["worker"])
        expect(
            opened.get_by_text("It is for operators, auditors, and clients that may read logs.").first
        ).to_be_visible()
        page.check(is_network_expected=True)
        context.close()


def test_a_reader_of_one_log_has_the_pages_of_that_log(
    browser: Browser, shown: ConsoleProcess, cluster: DevCluster, tmp_path: Path
) -> None:
    file = write_principals(tmp_path, {"reader": ("r" * 40, 'role = "client"\naccess = "read"\nlogs = ["orders"]')})
    with console(cluster.metadata_uri, "--principals", str(file)) as guarded:
        context = browser.new_context(viewport={"width": 360, "height": 800})
        page = WatchedPage(context.new_page(), guarded.url)
        opened = page.open("bookies")
        enter_token(opened, "r" * 40)
        links = opened.get_by_role("navigation", name="Views").get_by_role("link")
        expect(links).to_have_text(["Logs", "Followers", "Data", "Findings"])
        logs = opened.get_by_role("table", name="Logs")
        expect(logs.locator("tbody tr")).to_have_count(1)
        expect(logs).to_contain_text("orders")
        expect(opened.locator("#live-text")).to_have_text("live")
        expect(opened.locator("#role")).to_have_text("client")
        opened = page.open("logs/orders")
        expect(opened.locator("aside")).to_contain_text("Who led it")
        opened = page.open("browse/shop/sql")
        expect(opened.get_by_label("Log", exact=True).get_by_role("option")).to_have_count(1)
        expect(opened.get_by_role("table", name="Records")).to_contain_text("key-0")
        opened.get_by_role("button", name="Keys").click()
        expect(opened.get_by_role("table", name="Keys").locator("tbody tr")).to_have_count(5)
        assert opened.evaluate("document.documentElement.scrollWidth") <= 360
        page.check(is_network_expected=True)
        context.close()


def test_a_late_refusal_of_no_token_does_not_ask_again_who_has_entered_one(
    browser: Browser, shown: ConsoleProcess, cluster: DevCluster, tmp_path: Path
) -> None:
    file = write_principals(tmp_path, {"reader": ("r" * 40, 'role = "client"\naccess = "read"\nlogs = ["orders"]')})
    with console(cluster.metadata_uri, "--principals", str(file)) as guarded:
        context = browser.new_context()
        page = WatchedPage(context.new_page(), guarded.url)
        held: list[Route] = []
        page.page.route("**/api/v1/view*", lambda route: route.continue_() if held else held.append(route))
        opened = page.open("logs")
        enter_token(opened, "r" * 40)
        expect(opened.locator("#live-text")).to_have_text("live")
        with opened.expect_response(lambda answer: answer.status == 401):
            held[0].continue_()
        expect(opened.get_by_role("table", name="Logs").locator("tbody tr")).to_have_count(1)
        expect(opened.get_by_role("dialog")).to_have_count(0)
        context.close()


async def _place(uri: str, placement: ClusterPlacement | None, audit: AuditRecord | None) -> None:
    client = await LedgerClient.connect(uri)
    try:
        await write_placement(client.ledgers, placement)
        if audit is None:
            await client.store.delete(audit_path(client.ledgers.root, "audit"))
        else:
            await AuditRecords(client.store, client.ledgers.root).write("audit", audit)
    finally:
        await client.close()


def test_where_copies_lie_and_what_an_audit_found_is_told_without_a_reload(
    page: WatchedPage, cluster: DevCluster
) -> None:
    opened = page.open("bookies")
    placement = opened.get_by_role("region", name="Placement")
    expect(placement).to_contain_text("There is no rule")
    cookies = opened.get_by_role("table", name="Cookies").locator("tbody tr")
    expect(cookies).to_have_count(3)
    rule = PlacementRule(zones_min=2, is_strict=False)
    placed = ClusterPlacement(rule=rule, bookies=dict.fromkeys(cluster.bookies[:2], "/north/hall-a/7"))
    look = AuditLook(by=EVIL, request=0, began_ms=1_000, ended_ms=3_000, ledger_count=7, lacking_count=1, lacking=(5,))
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(_place(cluster.metadata_uri, placed, AuditRecord(last=look)))).result()
        try:
            expect(placement).to_contain_text("at least 2 zones, where the bookies at hand allow it")
            expect(placement).to_contain_text(f"Nobody said where {cluster.bookies[2]} stands")
            broken = placement.get_by_role("table", name="Ledgers that break the placement rule").locator("tbody tr")
            expect(broken.first).to_be_visible()
            rows = opened.get_by_role("table", name="Bookies").locator("tbody tr")
            expect(rows.filter(has_text="hall-a")).to_have_count(2)
            expect(opened.get_by_role("region", name="Warnings")).to_contain_text("break the placement rule")
            audit = opened.get_by_role("region", name="Audit")
            expect(audit).to_contain_text(f"by {EVIL}: 7 ledgers in 2.0 s; 1 lack copies (5)")
            expect(audit).to_contain_text("nobody: rsm autorecovery run")
            opened.get_by_role("searchbox", name="Filter bookies").fill("hall-a")
            expect(rows).to_have_count(2)
        finally:
            thread.submit(lambda: asyncio.run(_place(cluster.metadata_uri, None, None))).result()
    expect(placement).to_contain_text("There is no rule")
    page.check()
