"""Pages in a real browser: accessible and complete at any width, updated live, usable by keyboard and without
JavaScript."""

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from controller.access.users import Users
from tests.http.pages.story import HOSTILE
from tests.http.pages.test_pages import PAGES
from tests.http.service import Service, service
from tests.http.test_gate import basic, logins
from tests.support.browser import chromium
from tests.support.tools import cached

WITHIN_S = 240
AXE = """
const done = arguments[arguments.length - 1];
axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((found) =>
  done(found.violations.map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


class Look:
    """A browser that shows pages of a service."""

    def __init__(self, browser: Chrome, port: int) -> None:
        self.browser = browser
        self.base = f"http://127.0.0.1:{port}"
        self.browser.get_log("browser")  # type: ignore[no-untyped-call]  # what others left

    def at(self, path: str, width: int = 1440, *, dark: bool = False) -> None:
        self.set_width(width)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=scheme)
        self.browser.get(self.base + path)

    def set_width(self, width: int) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a DevTools command; returns the result."""
        return self.browser.execute_cdp_cmd(name, parameters)

    def run(self, script: str) -> Any:
        return self.browser.execute_script(script)

    def text(self, selector: str = "main") -> str:
        """The text of an element, collapsed parts included."""
        return str(self.run(f"return document.querySelector({selector!r})?.textContent ?? ''"))

    def until(self, reached: Callable[[], object], what: str) -> None:
        """Wait, also while the next page replaces this one, which ends its scripts."""
        waiting = WebDriverWait(self.browser, WITHIN_S, ignored_exceptions=[WebDriverException])
        try:
            waiting.until(lambda _: reached())
        except TimeoutException:
            raise AssertionError(f"{what}: {self.text('body')[:2000]}") from None

    def shows(self, words: str) -> None:
        """Wait until the page contains these words; it may be the next page."""
        gone = [StaleElementReferenceException, NoSuchElementException]
        waiting = WebDriverWait(self.browser, WITHIN_S, ignored_exceptions=gone)
        waiting.until(lambda browser: words in browser.find_element(By.TAG_NAME, "main").text, words)

    def click(self, selector: str) -> None:
        self.browser.find_element(By.CSS_SELECTOR, selector).click()

    def fill(self, selector: str, text: str) -> None:
        field = self.browser.find_element(By.CSS_SELECTOR, selector)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        self.browser.switch_to.active_element.send_keys(*keys)

    @property
    def complaints(self) -> list[Any]:
        return list(self.browser.get_log("browser"))  # type: ignore[no-untyped-call]


@cache
def axe() -> str:
    return (cached("axe") / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


async def test_accessibility(eventful: Service, browser: Chrome) -> None:
    look = Look(browser, eventful.port)
    created = (await eventful.get("/v1/topics/pay.orders"))["created_by"]["request_id"]
    refused = (await eventful.get("/v1/requests?principal=User:ANONYMOUS&outcome=rejected"))["requests"]
    hostile = next(each["request_id"] for each in refused if HOSTILE[0] in each["topics"])
    paths = (*PAGES, f"/requests/{created}", "/topics?at=40", f"/requests/{hostile}")

    def check() -> None:
        wrong: list[object] = []
        for path in paths:
            look.at(path, dark=len(path) % 2 == 0)
            for width in (1920, 390):
                look.set_width(width)
                wider = look.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wider == 0, f"{path} at {width} is {wider} too wide"
            look.run(axe())
            found = browser.execute_async_script(AXE)
            wrong += [(path, *each) for each in found]
            assert look.run("return window.hacked === undefined"), path
        assert wrong == []
        assert look.complaints == []

    await asyncio.to_thread(check)


async def test_a_column_of_the_strip_leads_to_its_time(eventful: Service, browser: Chrome) -> None:
    look = Look(browser, eventful.port)

    def check() -> None:
        look.at("/topics/pay.orders")
        hover = look.text(".strip a:last-child title")
        assert re.fullmatch(r"\S+Z to \S+Z: \d+ .+", hover), hover
        look.run(
            "document.querySelector('.strip a:last-child .hit').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        look.until(lambda: "at=" in browser.current_url, "the column leads to a point in time")
        assert look.text(".when").startswith("As of 20")
        there = browser.current_url
        look.click(".moment .button")
        look.until(lambda: "at=" not in browser.current_url, "back to now")
        look.at(f"/topics/pay.orders?at={40}")
        look.click(".history li:last-child a")
        look.at("/topics/pay.gone")
        assert "it was deleted at offset" in look.text()
        look.click(".error .button")
        look.until(lambda: look.text("h1") == "pay.gone", "the moment before")
        assert look.browser.current_url != there

    await asyncio.to_thread(check)


async def test_live_updates_and_lost_connection(eventful: Service, browser: Chrome) -> None:
    look = Look(browser, eventful.port)
    await asyncio.to_thread(look.at, "/topics?name=new*")
    await asyncio.to_thread(look.until, lambda: "live" in look.text(".when"), "it is live")
    await eventful.create("new.one", replication_factor=2)
    await asyncio.to_thread(look.until, lambda: "new.one" in look.text(), "the topic is shown")
    newest = (
        f"return Date.parse(document.querySelector('.axis :last-child').dateTime) >= {eventful.controller.now_ms()}"
    )
    await eventful.create("new.last", replication_factor=2)
    await asyncio.to_thread(look.until, lambda: look.run(newest), "the strip goes up to the newest event")
    await eventful.http.stop()
    lost = "return !document.getElementById('lost').hidden"
    await asyncio.to_thread(look.until, lambda: look.run(lost), "the page says that nobody answers")
    assert "No connection since" in look.text("#lost")
    again = eventful.http_side()
    await again.start("127.0.0.1", eventful.port)
    try:
        await asyncio.to_thread(look.until, lambda: not look.run(lost), "it comes back")
        await eventful.create("new.two", replication_factor=2)
        await asyncio.to_thread(look.until, lambda: "new.two" in look.text(), "and goes on")
    finally:
        await again.stop()
        await asyncio.to_thread(look.browser.get, "about:blank")


async def test_an_authenticated_user_gets_pages_and_live_updates(browser: Chrome, users: Users) -> None:
    async with service(logins=logins(users)) as one:
        look = Look(browser, one.port)
        one.client.headers["authorization"] = basic("carol", "carol-PLANTED")
        look.base = look.base.replace("//", "//carol:carol-PLANTED@")
        await asyncio.to_thread(look.at, "/topics")
        assert look.text(".who") == "User:carol"
        await asyncio.to_thread(look.until, lambda: "live" in look.text(".when"), "it is live")
        await one.create("new.one")
        await asyncio.to_thread(look.until, lambda: "new.one" in look.text(), "the topic is shown")
        await asyncio.to_thread(look.browser.get, "about:blank")


async def test_keyboard_and_no_script(eventful: Service, browser: Chrome) -> None:
    look = Look(browser, eventful.port)

    def by_keyboard() -> None:
        look.at("/policies")
        look.press(Keys.TAB)
        assert look.run("return document.activeElement.className") == "skip"
        look.press(Keys.ENTER)
        assert look.run("return location.hash") == "#main"
        look.fill("[name=replication_factor]", "2")
        look.fill("[name=name]", "pay.typed")
        look.press(Keys.ENTER)
        look.until(lambda: "It would be created: 2 partitions, factor 2" in look.text(), "a dry run")

    def without_script() -> None:
        look.command("Emulation.setScriptExecutionDisabled", value=True)
        try:
            look.at("/policies")
            look.fill("#create [name=name]", "orphan")
            look.fill("#create [name=replication_factor]", "2")
            look.click("#create button")
            look.shows("orphan has no owner")
            look.fill("#create [name=name]", "pay.made")
            look.fill("#create [name=configs]", "retention.ms=5")
            look.click("#create button")
            look.shows("It would be created")
            look.click("button.main")
            look.shows("From request to answer")
            look.at("/topics/pay.made")
            look.fill("[name=typed]", "pay.made")
            look.click("button.danger")
            look.shows("deleted")
        finally:
            look.command("Emulation.setScriptExecutionDisabled", value=False)

    await asyncio.to_thread(by_keyboard)
    await asyncio.to_thread(without_script)
    assert "it was deleted at offset" in (await eventful.get("/v1/topics/pay.made", 404))["message"]
    assert look.complaints == []
