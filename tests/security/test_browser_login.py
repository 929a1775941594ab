"""People log in to the page with a real identity provider, in a browser, by authorization code with PKCE."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from selenium.webdriver.support.ui import WebDriverWait

from tests.security.identity import PAGE_CLIENT, PAGE_SECRET, Provider, identity_provider
from tests.support.browser import chromium
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND


@dataclass(frozen=True, slots=True)
class Page:
    """A service whose page is open to users of the provider."""

    url: str
    provider: Provider

    def browser(self) -> httpx.Client:
        return httpx.Client(follow_redirects=True, timeout=60)

    def log_in(self, client: httpx.Client, user: str, path: str = "/topics") -> httpx.Response:
        """Follow the link of the login page and fill in the provider's two forms, as a person does."""
        page = client.get(self.url + path)
        assert page.status_code == 401
        link = re.search(r'<a href="(/login\?[^"]+)">Log in', page.text)
        assert link is not None, page.text
        page = client.get(self.url + link[1].replace("&amp;", "&"))
        for fields in ({"login": user, "password": "any"}, {}):
            action = re.search(r'action="([^"]+)"', page.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
            assert action is not None, page.text
            assert prompt is not None, page.text
            page = client.post(str(page.url.join(action[1])), data={"prompt": prompt[1], **fields})
        return page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    (port,) = free_ports(1)
    with identity_provider(folder) as provider:
        url = f"http://127.0.0.1:{port}"
        provider.tell(f"redirect {url}/login/callback")
        settings = {
            **provider.settings(),
            "http.oauth.client.id": PAGE_CLIENT,
            "http.oauth.client.secret": PAGE_SECRET,
            "http.oauth.redirect.url": f"{url}/login/callback",
            "http.oauth.scope": "openid groups",
            "authorizer.class.name": "StandardAuthorizer",
            "sasl.oauthbearer.scope.claim.name": "groups",
            "sasl.oauthbearer.scope.roles": "kafka-operators:operator,kafka-viewers:viewer",
        }
        config = folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        argv: list[str | Path] = [COMMAND, "serve", "--kafka", "127.0.0.1:0", "--http", f"127.0.0.1:{port}"]
        argv += ["--data", folder / "data", "--config", config]
        with Process(argv, cwd=folder, env={"PYTHONPATH": str(ROOT)}) as process:
            process.wait_for_line(r"^ready ", within_s=240)
            yield Page(url, provider)
            assert "PLANTED" not in process.output


def create(client: httpx.Client, page: Page, name: str) -> int:
    body = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return client.post(f"{page.url}/v1/topics", json=body, headers={"Origin": page.url}).status_code


def test_a_login_opens_a_session_with_the_users_role_until_it_logs_out(page: Page) -> None:
    with page.browser() as alice, page.browser() as bob:
        found = page.log_in(alice, "alice", "/topics?limit=5")
        assert str(found.url) == f"{page.url}/topics?limit=5"
        assert "User:alice" in found.text
        assert create(alice, page, "by-alice") == 201
        page.log_in(bob, "bob")
        assert "by-alice" in bob.get(f"{page.url}/topics").text
        assert create(bob, page, "by-bob") == 403, "a viewer"
        copied = {"topicwright-session": alice.cookies["topicwright-session"]}
        assert "Log out" in alice.get(page.url).text
        assert alice.post(f"{page.url}/logout").status_code == 401
        assert "topicwright-session" not in {cookie.name for cookie in alice.cookies.jar}
        with httpx.Client(cookies=copied) as thief:
            assert thief.get(f"{page.url}/v1/topics").status_code == 401, "the session is over, not only its cookie"
        assert bob.get(f"{page.url}/v1/topics").status_code == 200


def test_cookies_are_closed_to_scripts_and_other_sites(page: Page) -> None:
    answer = httpx.get(f"{page.url}/login?next=//evil.example")
    assert answer.status_code == 303
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert answer.headers["location"].startswith(f"{page.provider.issuer}/auth?")
    assert "; HttpOnly; SameSite=Lax" in answer.headers["set-cookie"]
    assert page.url not in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/login/callback?code=a&state=b", "begin the login again"),
        ("/login/callback", "begin the login again"),
        ("/login/callback?%ff=%00&state=%ff", "begin the login again"),
    ],
)
def test_a_callback_without_a_login_is_refused(page: Page, path: str, message: str) -> None:
    for cookies in ({}, {"topicwright-login": "gAAAA"}):
        with httpx.Client(cookies=cookies) as client:
            answer = client.get(page.url + path)
        assert (answer.status_code, message in answer.text) == (401, True)


def test_the_state_and_the_code_are_checked(page: Page) -> None:
    with httpx.Client(timeout=60) as client:
        started = client.get(f"{page.url}/login")
        state = parse_qs(urlsplit(started.headers["location"]).query)["state"][0]
        assert client.get(f"{page.url}/login/callback?code=a&state={state}x").status_code == 401
        assert client.get(f"{page.url}/login/callback?error=access_denied&state={state}").status_code == 401
        assert client.get(f"{page.url}/login/callback?code=a&state={state}&iss=http://evil").status_code == 401
        invented = client.get(f"{page.url}/login/callback?code=invented&state={state}")
        assert (invented.status_code, "set-cookie" in invented.headers) == (401, False)


@pytest.mark.parametrize("user", ["alice"])
def test_another_site_can_neither_log_out_nor_change_anything(page: Page, user: str) -> None:
    with page.browser() as client:
        page.log_in(client, user)
        evil = {"Origin": "http://evil.example"}
        assert client.post(f"{page.url}/v1/topics", json={"name": "x"}, headers=evil).status_code == 403
        assert client.get(f"{page.url}/logout").status_code == 401
        assert client.post(f"{page.url}/logout", headers=evil).status_code == 401
        assert client.get(f"{page.url}/v1/topics").status_code == 200


def test_chromium_logs_in_and_out(page: Page, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as browser:

        def press(selector: str) -> None:
            WebDriverWait(browser, 120).until(lambda _: browser.find_elements("css selector", selector))
            browser.find_element("css selector", selector).click()

        browser.get(f"{page.url}/topics")
        press('a[href^="/login?next=%2Ftopics"]')
        WebDriverWait(browser, 120).until(lambda _: browser.find_elements("name", "login"))
        browser.find_element("name", "login").send_keys("alice")
        browser.find_element("name", "password").send_keys("any")
        press("button[type=submit]")
        press("form[action$='/confirm'] button, button[autofocus], form button[type=submit]")
        WebDriverWait(browser, 120).until(lambda _: browser.current_url == f"{page.url}/topics")
        assert "User:alice" in browser.find_element("css selector", "header").text
        assert browser.execute_script("return document.cookie") == ""
        press('form[action="/logout"] button')
        WebDriverWait(browser, 120).until(lambda _: browser.find_elements("css selector", 'a[href^="/login?"]'))
