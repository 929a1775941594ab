"""A service with a story: topics of all kinds, policy rejections, a failed broker, and names that try HTML
injection."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import httpx

from projections.views.overviews import QuorumView, VoterView
from tests.http.service import POLICY, Judge, Service, owned, service

HTML = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
"""Chromium's Accept header."""
LONG = "long." + "x" * 244
HOSTILE = (
    "<script>window.hacked=1</script>",
    "a\"onmouseover='window.hacked=1'x=",
    "\u202egnp.exe\u2066",
    "line\nbreak\x1b[2J",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hacked=1",
    "../../etc",
    "שלום.topic",
)
"""Invalid names. The log records refused requests with these names unchanged."""
CLIENT = "<img src=x onerror=window.hacked=1>"
RULES = """
[[rule]]
name = "size"
mode = "observe"
partitions = { min = 2 }

[[rule]]
name = "retention"
configs = { "retention.ms" = { max = 604800000 } }

[[rule.exception]]
topics = "archive.*"
reason = "kept for the auditors"
until = 2030-12-31
"""
QUORUM = QuorumView(
    node_id=3000,
    role="follower",
    epoch=4,
    leader=3001,
    leads_since="2026-07-17T10:00:00.000Z",
    leads_since_ms=1784282400000,
    high_watermark=12_345,
    applied=12_344,
    voters=(
        VoterView(node_id=3000, host="10.0.0.1", port=9093, priority=1, log_end=None, lag=None),
        VoterView(node_id=3001, host="10.0.0.2", port=9093, priority=None, log_end=12_345, lag=0),
    ),
)


@asynccontextmanager
async def story(*, hostile: bool = True, **more: Any) -> AsyncIterator[Service]:
    """Yields the service after the story. Without `hostile` it has no injection attempts; the screenshots use that."""
    async with service(settings=POLICY, judge=Judge(owned), **more) as one:
        one.api.quorum = lambda: QUORUM
        await one.request("POST", "/v1/rules", json={"text": RULES})
        one.client.headers["user-agent"] = "billing-api 2.1"
        await one.create("pay.orders", num_partitions=6, configs={"retention.ms": "86400000"})
        await one.create("pay.invoices", num_partitions=3, configs={"cleanup.policy": "compact"})
        await one.create("web.clicks", num_partitions=12, configs={"min.insync.replicas": "2"})
        await one.create("pay.single", num_partitions=1)
        await one.create("orphan", 403)
        await one.create("web.huge", 400, num_partitions=3, replication_factor=9)
        await one.request("PATCH", "/v1/topics/pay.orders", json={"configs": {"retention.ms": "3600000"}})
        await one.request("PATCH", "/v1/topics/pay.orders", json={"num_partitions": 8})
        await one.create("pay.gone")
        await one.request("DELETE", "/v1/topics/pay.gone")
        if hostile:
            await one.create(LONG, num_partitions=1)
        for name in HOSTILE if hostile else ():
            await one.client.post("/v1/topics", json={"name": name}, headers={"user-agent": CLIENT})
        one.brokers.stop_broker(2)
        await one.live(1, 3)
        yield one


async def page(one: Service, path: str, expect: int = 200, **more: Any) -> str:
    """Get a page as a browser does."""
    answer = await one.client.get(path, headers=HTML, follow_redirects=True, **more)
    assert answer.status_code == expect, f"{path}: {answer.status_code} {text_of(answer.text)}"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def from_page(one: Service) -> dict[str, str]:
    """The headers of a form that a browser submits."""
    return {**HTML, "origin": str(one.client.base_url).rstrip("/")}


async def send(one: Service, path: str, expect: int = 303, **fields: str) -> httpx.Response:
    """Submit a form as a browser does."""
    answer = await one.client.post(path, data=fields, headers=from_page(one))
    assert answer.status_code == expect, f"{path}: {answer.status_code} {text_of(answer.text)}"
    return answer


class Read(HTMLParser):
    """A parsed page: its elements, links, text, and the rows of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img", "input", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> has no start tag"
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data
        if data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def links(self) -> list[str]:
        return [str(attrs["href"]) for tag, attrs in self.elements if tag == "a"]

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attrs for name, attrs in self.elements if name == tag)


def text_of(page_text: str) -> str:
    return Read(page_text).text
