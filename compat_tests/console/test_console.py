"""The console as a user sees it: in a browser, with real clients beside it, and with hostile records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from compat_tests.console import demo
from compat_tests.console.browser import ENTER, Browser
from compat_tests.console.conftest import Shown

HARM = "<img src=x onerror='window.harmed=1'><script>window.harmed=1</script>"
TITLE = "document.querySelector('h1')?.textContent"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A broker with sample data. No test deletes any of it."""
    with Shown(tmp_path_factory.mktemp("shop")) as broker:
        demo.fill(broker.address)
        demo.commit(broker.address, "billing", "orders", dict.fromkeys(range(6), 20))
        yield broker
        assert broker.errors() == []


def rows(browser: Browser) -> int:
    return int(browser.run("document.querySelectorAll('tbody tr:not(:has(.empty))').length"))


def test_every_view_has_an_address_and_no_script_fails(shop: Shown, browser: Browser) -> None:
    views = {
        "overview": ("Overview", "Records appended"),
        "topics": ("Topics", "orders"),
        "topics/orders": ("orders", "Oslo"),
        "topics/orders/partitions": ("orders", "End offset"),
        "topics/orders/settings?filter=retention": ("orders", "retention.ms"),
        "topics/orders/groups": ("orders", "billing"),
        "groups": ("Consumer groups", "billing"),
        "groups/billing": ("billing", "The group has no members"),
        "queries": ("Queries & streams", "There are no query topics"),
        "transactions": ("Transactions", "no transactional producers"),
        "access": ("Users & ACLs", "not enforced"),
        "settings?filter=http": ("Settings", "barnabas.http.console.writes"),
    }
    browser.open(shop.url)
    browser.complaints()
    for path, (title, text) in views.items():
        browser.open(f"{shop.url}#/{path}")
        browser.until(f"{TITLE}?.startsWith(arguments[0])", title)
        browser.until_text(text, "#main")
    assert browser.complaints() == []


def test_keys_lead_everywhere(shop: Shown, browser: Browser) -> None:
    browser.open(f"{shop.url}#/overview")
    browser.until(f"{TITLE} === 'Overview'")
    browser.keys("gt")
    browser.until(f"{TITLE} === 'Topics'")
    browser.until("document.querySelectorAll('tbody tr').length === 5")
    browser.keys("/")
    browser.keys("pay")
    browser.until("document.querySelectorAll('tbody tr').length === 1")
    assert browser.run("location.hash") == "#/topics?filter=pay"
    browser.run("document.activeElement.blur()")
    browser.keys("j" + ENTER)
    browser.until(f"{TITLE}.startsWith('payments')")
    browser.keys("?")
    browser.until_text("light or dark", "dialog")
    browser.run("document.querySelector('dialog').close()")
    before = browser.run("document.documentElement.dataset.theme")
    browser.keys("d")
    assert browser.run("document.documentElement.dataset.theme") != before
    browser.keys("d")


def test_messages_are_searched_and_opened(shop: Shown, browser: Browser) -> None:
    browser.open(f"{shop.url}#/topics/orders/messages")
    browser.until("document.querySelectorAll('tr.row').length >= 50")
    browser.fill("[data-search]", "$.id = 10017" + ENTER)
    browser.until_text("1 found in 400 records")
    assert rows(browser) == 1
    assert "search=%24.id+%3D+10017" in browser.run("location.hash")
    browser.click("tr.row .toggle")
    browser.until_text("trace", "tr.detail")
    browser.until_text('"city": "Graz"', "tr.detail")
    browser.fill("[data-search]", "$.id ? 3" + ENTER)
    browser.until_text("the search: expected =")
    browser.open(f"{shop.url}#/topics/audit.log/messages")
    browser.until_text("00 01 02 03")


def test_messages_are_searched_by_a_condition(shop: Shown, browser: Browser) -> None:
    columns = {"barnabas.value.schema": "device STRING, temp INT"}
    demo.create(shop.address, NewTopic("readings", 2, 1, config=columns))
    producer = Producer({"bootstrap.servers": shop.address})
    for number in range(100):
        producer.produce("readings", f'{{"device": "d{number % 5}", "temp": {number}}}', partition=number % 2)
    producer.flush(60)
    browser.complaints()  # those of other tests
    browser.open(f"{shop.url}#/topics/readings/messages?limit=25")
    browser.until("document.querySelectorAll('tr.row').length >= 25")
    browser.fill("[data-search]", "WHERE device = 'd3' AND temp > 20" + ENTER)
    browser.until_text("16 found in 100 records")
    assert rows(browser) == 16
    assert "search=WHERE+device+%3D+%27d3%27" in browser.run("location.hash")
    browser.fill("[data-search]", "where temp % 2 = 1" + ENTER)
    browser.until_text("25 found in 100 records")
    browser.click_text("Older messages ↓")
    browser.until("document.querySelectorAll('tr.row').length === 50")
    browser.fill("[data-search]", "WHERE colour = 1" + ENTER)
    browser.until_text("there is no column `colour`")
    browser.fill("[data-search]", "WHERE hash(temp) = 1" + ENTER)
    browser.until_text("If it is right, ask Spark: barnabas sql")
    browser.choose("select[aria-label='Where to begin']", "live")
    browser.until_text("Live messages cannot be searched with WHERE")
    assert browser.complaints() == []


def test_a_record_is_produced_and_seen_live(shop: Shown, browser: Browser) -> None:
    demo.create(shop.address, NewTopic("live", 2, 1))
    browser.open(f"{shop.url}#/topics/live/messages?from=live")
    browser.until("document.querySelector('.live')")
    producer = Producer({"bootstrap.servers": shop.address})
    producer.produce("live", b"from a client")
    producer.flush(60)
    browser.until_text("from a client", "tr.row")
    browser.click_text("Produce a record")
    browser.fill("dialog textarea[aria-label='Value']", '{"from": "the page"}')
    browser.fill("dialog textarea[aria-label='Headers']", "origin: console")
    browser.click_text("Produce", "dialog button")
    browser.until_text("Appended to partition", "#notes")
    browser.open(f"{shop.url}#/topics/live/messages?limit=25")
    browser.until_text("the page", "tr.row")


def test_a_topic_is_made_changed_and_deleted(shop: Shown, browser: Browser) -> None:
    browser.open(f"{shop.url}#/topics")
    browser.click_text("Create a topic")
    browser.fill("dialog input[aria-label='Name']", "made")
    browser.fill("dialog input[aria-label='Partitions']", "2")
    browser.fill("dialog textarea[aria-label='Settings']", "retention.ms=nothing")
    browser.click_text("Create", "dialog button")
    browser.until_text("INVALID_CONFIG", "dialog .wrong")
    browser.fill("dialog textarea[aria-label='Settings']", "retention.ms=60000")
    browser.click_text("Create", "dialog button")
    browser.until(f"{TITLE} === 'made'")
    browser.open(f"{shop.url}#/topics/made/settings?filter=retention.ms")
    browser.click("button[aria-label='Change retention.ms']")
    browser.fill("dialog textarea", "120000")
    browser.click_text("Change", "dialog button")
    browser.until_text("120000", "tbody")
    browser.click_text("Delete topic")
    browser.fill("dialog input", "mad")
    browser.click_text("Delete topic", "dialog button")
    browser.until_text("That is not made", "dialog .wrong")
    browser.fill("dialog input", "made")
    browser.click_text("Delete topic", "dialog button")
    browser.until(f"{TITLE} === 'Topics'")
    browser.until("document.querySelector('tbody')?.innerText.includes('made') === false")


def test_a_group_is_moved_after_a_preview(shop: Shown, browser: Browser) -> None:
    demo.commit(shop.address, "moved", "payments", {0: 10, 1: 10, 2: 10})
    browser.open(f"{shop.url}#/groups/moved")
    browser.click_text("Reset offsets")
    browser.choose("dialog label:nth-of-type(2) select", "earliest")
    browser.click_text("Preview", "dialog button")
    browser.until_text("Nothing has been changed yet", "dialog")
    browser.click_text("Reset", "dialog button")
    browser.until_text("continues at other offsets", "#notes")
    browser.until(
        "[...document.querySelectorAll('section:last-of-type tbody tr')].every(r => r.cells[2].innerText === '0')"
    )
    browser.click_text("Delete group")
    browser.click_text("Delete group", "dialog button")
    browser.until(f"{TITLE} === 'Consumer groups'")
    browser.until("document.querySelector('tbody')")
    assert "moved" not in browser.run("document.querySelector('tbody').innerText").split()


def test_what_records_and_names_say_is_shown_and_never_run(shop: Shown, browser: Browser) -> None:
    demo.create(shop.address, NewTopic("harm", 1, 1))
    producer = Producer({"bootstrap.servers": shop.address, "message.max.bytes": 2_000_000})
    producer.produce("harm", HARM, HARM, headers=[(HARM, HARM.encode())])
    producer.produce("harm", '{"a": "' + HARM + '"}', b"\xff\xfe\x00")
    producer.produce("harm", "<b>" * 300_000, b"big")
    producer.flush(60)
    demo.commit(shop.address, HARM, "harm", {0: 1})
    browser.open(f"{shop.url}#/topics/harm/messages")
    browser.until("document.querySelectorAll('tr.row').length === 3")
    for each in range(3):
        browser.run("document.querySelectorAll('tr.row')[arguments[0]].click() ?? true", each)
    browser.until("document.querySelectorAll('tr.detail').length === 3")
    browser.until_text(HARM, "#main")
    browser.click_text("Show all")
    browser.until("[...document.querySelectorAll('tr.detail pre')].some(p => p.textContent.length === 262144)")
    browser.open(f"{shop.url}#/groups")
    browser.until_text(HARM, "#main")
    browser.click_text(HARM)
    browser.until(f"{TITLE}?.startsWith('<img')")
    browser.open(f"{shop.url}#/topics/{HARM.replace('/', '%2F')}")
    browser.until_text("INVALID_TOPIC_EXCEPTION", ".wrong")
    assert browser.run("window.harmed") is None
    assert browser.run("document.querySelectorAll('main img, main script, main b').length") == 0


def test_the_page_outlives_its_broker(tmp_path: Path, browser: Browser) -> None:
    with Shown(tmp_path) as broker:
        demo.create(broker.address, NewTopic("kept", 1, 1))
        browser.open(f"{broker.url}#/topics")
        browser.until_text("kept", "#main")
        broker.kill()
        browser.until_text("The broker does not answer", "#banner")
        broker.start()
        browser.until("document.querySelector('#banner').hidden")
        browser.until_text("kept", "#main")
        # The session has a new token after the restart: a change must succeed.
        browser.click_text("kept")
        browser.click_text("Produce a record")
        browser.fill("dialog textarea[aria-label='Value']", "after")
        browser.click_text("Produce", "dialog button")
        browser.until_text("Appended to partition", "#notes")


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret" user_root="other";'


def test_a_user_logs_in_and_sees_what_acls_allow(tmp_path: Path, browser: Browser) -> None:
    locked = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": "1",
    }
    with Shown(tmp_path, locked) as broker:
        demo.create(broker.address, NewTopic("hers", 1, 1), NewTopic("others", 1, 1))
        demo.allow_read(broker.address, "User:ann", "hers")
        browser.open(f"{broker.url}#/topics")
        browser.fill("input[name=name]", "ann")
        browser.fill("input[name=password]", "wrong" + ENTER)
        browser.until_text("wrong name or password")
        browser.fill("input[name=password]", "secret" + ENTER)
        browser.until_text("hers", "#main")
        assert "others" not in browser.text()
        browser.open(f"{broker.url}#/topics/others")
        browser.until_text("TOPIC_AUTHORIZATION_FAILED", ".wrong")
        browser.open(f"{broker.url}#/access")
        browser.until_text("CLUSTER_AUTHORIZATION_FAILED", ".wrong")
        browser.click("button[aria-label='Log out']")
        browser.until("document.querySelector('input[name=password]')")
        browser.fill("input[name=name]", "root")
        browser.fill("input[name=password]", "other" + ENTER)
        browser.until_text("User:ann", "#main")


def test_a_query_topic_has_its_text_and_a_graph(tmp_path: Path, browser: Browser) -> None:
    with Shown(tmp_path) as broker:
        demo.create(broker.address, NewTopic("orders", 1, 1))
        query = {"barnabas.query": "SELECT _key, _value FROM orders WHERE _key > '1'"}
        demo.create(broker.address, NewTopic("large", -1, 1, config=query))
        browser.open(f"{broker.url}#/queries")
        browser.until("document.querySelectorAll('.graph .box').length === 2")
        browser.until_text("WHERE _key > '1'", "pre")
        assert browser.run("document.querySelectorAll('.graph .edge').length") == 1
        browser.open(f"{broker.url}#/topics/orders/query")
        browser.until_text("Read by queries", "#main")
        browser.until("document.querySelectorAll('.graph .box.query').length === 1")
        browser.until_text("running", "#main")


@pytest.mark.long
def test_ten_thousand_topics_are_a_page(tmp_path: Path, browser: Browser) -> None:
    with Shown(tmp_path) as broker:
        for first in range(0, 10_000, 1000):
            demo.create(broker.address, *(NewTopic(f"topic-{n:05}", 1, 1) for n in range(first, first + 1000)))
        browser.open(f"{broker.url}#/topics")
        browser.until_text("1–50 of 10,000")
        browser.keys("n")
        browser.until_text("51–100 of 10,000")
        browser.click_text("Records", "th button")
        browser.until_text("1–50 of 10,000")
        browser.fill("[data-search]", "topic-09999")
        browser.until_text("1 in total")
        browser.open(f"{broker.url}#/overview")
        browser.until_text("10,000", ".tile")


#: The pictures of the docs: the page's address, the condition to wait for, and the element to click.
PICTURES = {
    "messages": (
        "#/topics/orders/messages?search=%24.customer.city+%3D+%22Oslo%22&limit=25",
        "document.querySelector('.status')?.innerText.includes('found in')",
        "tr.row .toggle",
    ),
    "topics": ("#/topics", "document.querySelectorAll('tbody tr').length > 4", None),
    "queries": ("#/queries", "document.querySelector('.graph, .calm')", None),
    "group": ("#/groups/billing", "document.querySelectorAll('section:last-of-type tbody tr').length === 6", None),
    "overview": ("#/overview", "document.querySelector('.tile')", None),
}
#: The pictures with the dark theme.
DARK = {"messages"}


def test_the_pictures_of_the_docs(shop: Shown, browser: Browser, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """`--screenshots` writes them to docs/console/; without it, the test only checks that they can be made."""
    is_kept = pytestconfig.getoption("--screenshots")
    folder = Path(__file__).parents[2] / "docs" / "console" if is_kept else tmp_path
    folder.mkdir(exist_ok=True)
    browser.resize(1280, 1000 if is_kept else 800)
    if is_kept:
        demo.queries(shop.address)
    for name, (path, condition, click) in PICTURES.items():
        browser.open(shop.url + path)
        browser.run(f"document.documentElement.dataset.theme = '{'dark' if name in DARK else 'light'}'")
        browser.until(condition)
        if click:
            browser.click(click)
        if is_kept and name in ("group", "overview"):  # so that the chart has some samples, with activity
            line = "document.querySelector('.chart .line').getAttribute('d').split('L').length > 8"
            while not browser.run(line):
                demo.fill_more(shop.address)
        if is_kept and name == "queries":
            browser.until("[...document.querySelectorAll('.badge')].filter(b => b.innerText === 'running').length > 2")
        browser.run(
            "document.querySelectorAll('.panel > p.mono').forEach(p => p.textContent = '/var/lib/barnabas') ?? 1"
        )
        browser.screenshot(folder / f"{name}.png")
        assert 0 < (folder / f"{name}.png").stat().st_size < 150_000
