"""The page of a report with known numbers, in a real browser: it shows exactly these numbers."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from projections.replay.report import page
from projections.replay.report_figures import (
    BUCKETS_MAX,
    OUTCOMES,
    VERMILION,
    WAIT_EDGES_MS,
    Report,
    Row,
    bin_text,
    bucket_ms,
    wait_bins,
)
from projections.views.lines import span
from tests.support.browser import chromium

BORN_MS = 1_700_000_000_000
HOSTILE = "policy:</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>"


def rows_of(names: str, *rows: tuple[object, ...]) -> list[Row]:
    """Rows with these columns."""
    return [Row(**dict(zip(names.split(), row, strict=True))) for row in rows]


BROKER = "broker_id status rack replicas leaders"
REPORT = Report(
    log="/data/<b>log</b>",
    ends={0: 12_345},
    events=12_345,
    first_ms=BORN_MS,
    last_ms=BORN_MS + 3_600_000,
    releases=("0.0.9", "0.1.0"),
    bucket_ms=600_000,
    outcomes=rows_of(
        "at_ms outcome count",
        *(
            (BORN_MS + hour * 600_000, outcome, count)
            for hour, counts in enumerate(((300, 0, 100), (150, 50, 0), (600, 0, 200)))
            for outcome, count in zip(("created", "timed-out", "rejected"), counts, strict=True)
            if count
        ),
    ),
    events_by_type=(("TopicCreated", 1100), ("CreateRejected", 300)),
    waits=Row(complete=1100, never=7, median_ms=8, p95_ms=40, p99_ms=90, max_ms=99),
    wait_bins=wait_bins({3: 700, 4: 300, 6: 100}),
    refusals=rows_of(
        "rule error count",
        ("validation:exists", "TOPIC_ALREADY_EXISTS (36)", 240),
        (HOSTILE, "POLICY_VIOLATION (44)", 60),
    ),
    held=Row(topics=1090, partitions=2200, placeholders=12, leaderless=3),
    brokers=rows_of(
        BROKER, (1, "live", "east", 2000, 900), (2, "fenced", "west", 1500, 400), (7, "not registered", None, 100, 0)
    ),
    lanes=rows_of(
        "broker_id since_ms until_ms status",
        (1, BORN_MS, BORN_MS + 3_600_000, "live"),
        (2, BORN_MS, BORN_MS + 60_000, "down"),
    ),
    health=rows_of(
        "at_ms partitions leaderless under_replicated placeholders",
        (BORN_MS, 2100, 3, 40, 0),
        (BORN_MS + 600_000, 2200, 0, 12, 12),
    ),
    principals=(("User:<b>ann</b>", 1000, 300),),
    changes=(("2026-07-17T10:00:00Z", "User:ann", "<i>t</i>", "deleted"),),
    checks=rows_of(
        "name demands violations examples",
        ("offsets-contiguous", "offsets are contiguous, from 0 on", 0, ()),
        ("leader-in-isr", "the leader is in sync", 2, ("offset 17, topic <i>t</i>: 3, expected 1",)),
    ),
    violations=2,
)


def changed(**changes: Any) -> Report:
    """REPORT with some fields replaced."""
    return Report(**{**vars(REPORT), **changes})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A headless browser without a network and with its own profile."""
    with chromium(tmp_path_factory.mktemp("profile"), "--window-size=1240,2400") as chrome:
        yield chrome


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the page of REPORT."""
    return tmp_path_factory.mktemp("page")


@pytest.fixture
def shown(browser: Chrome, folder: Path) -> Chrome:
    """The browser at the page of REPORT."""
    if browser.current_url != (folder / "report.html").as_uri():
        show(browser, REPORT, folder)
    return browser


def show(browser: Chrome, report: Report, folder: Path) -> Chrome:
    """Open the page of a report."""
    file = folder / "report.html"
    file.write_text(page(report), encoding="utf-8")
    browser.get(file.as_uri())
    return browser


def texts(browser: Chrome, selector: str) -> list[str]:
    """The texts of elements, collapsed ones included."""
    return [one.get_property("textContent") for one in browser.find_elements(By.CSS_SELECTOR, selector)]  # type: ignore[misc]


def rows(browser: Chrome, section: str) -> list[list[str]]:
    """The rows of the table in a section."""
    return [
        [cell.get_property("textContent") for cell in row.find_elements(By.CSS_SELECTOR, "td")]  # type: ignore[misc]
        for row in browser.find_elements(By.CSS_SELECTOR, f"#{section} tr")[1:]
    ]


def test_report_page_loads_no_resources_and_logs_no_errors(browser: Chrome, folder: Path) -> None:
    shown = show(browser, REPORT, folder)
    assert shown.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert shown.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert shown.title == "Replay of /data/<b>log</b>"


READABLE = """
const dark = (colour) => colour.match(/\\d+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0) < 384;
const style = (one) => getComputedStyle(one);
const texts = [...document.querySelectorAll(".xtick text, .ytick text, .legendtext, .xtitle, .ytitle, .bartext")];
const names = [...document.querySelectorAll("#invariants td:first-child, #invariants td.status")];
return {
  page: dark(style(document.body).backgroundColor),
  card: dark(style(document.querySelector("section")).backgroundColor),
  words: new Set([...texts.map((one) => dark(style(one).fill)), dark(style(document.body).color)]).size,
  ink: dark(style(texts[0]).fill),
  wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  broken: names.filter((one) => one.offsetHeight > 1.8 * parseFloat(style(one).lineHeight)).map((one) => one.innerText),
};
"""


@pytest.mark.parametrize("dark", [False, True])
def test_report_page_is_readable_in_dark_mode_and_on_a_phone(browser: Chrome, folder: Path, dark: bool) -> None:
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    phone = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    try:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        found = show(browser, REPORT, folder).execute_script(READABLE)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert found == {"page": dark, "card": dark, "words": 1, "ink": not dark, "wider": 0, "broken": []}


def test_report_page_escapes_texts_of_the_log(shown: Chrome) -> None:
    assert shown.execute_script("return window.hacked === undefined")
    assert shown.find_elements(By.CSS_SELECTOR, "main img, h1 b, td i, code i") == []
    assert texts(shown, "h1") == ["Replay of /data/<b>log</b>"]
    assert rows(shown, "refusals")[1] == [HOSTILE, "POLICY_VIOLATION (44)", "60"]
    assert any(one.startswith("policy:</script><script>win") for one in texts(shown, "#refusals .ytick text"))


def test_report_charts_have_a_bar_for_each_value(shown: Chrome) -> None:
    bars = {
        name: len(texts(shown, f"#{name} .bars .point"))
        for name in ("outcomes", "lanes", "waits", "refusals", "brokers")
    }
    assert bars == {"outcomes": 6, "lanes": 2, "waits": 4, "refusals": 2, "brokers": 6}
    assert len(texts(shown, "#health .scatter .js-line")) == 4
    assert texts(shown, "#outcomes .legendtext") == ["created", "timed out", "rejected"]
    assert texts(shown, "#brokers .legendtext") == ["replicas", "leaders"]
    assert texts(shown, "#waits .xtick text") == [
        "5 ms to 10 ms",
        "10 ms to 20 ms",
        "20 ms to 50 ms",
        "50 ms to 100 ms",
    ]
    assert texts(shown, "#brokers .xtick text") == ["1", "2fenced", "7not registered"]
    assert texts(shown, "#refusals .bartext") == ["240", "60"]


def test_report_charts_are_followed_by_tables_of_their_values(shown: Chrome) -> None:
    assert [row[0::2] for row in rows(shown, "outcomes")][:3] == [
        ["created", "1,050"],
        ["timed out", "50"],
        ["rejected", "300"],
    ]
    assert rows(shown, "waits")[0] == ["5 ms to 10 ms", "700"]
    assert rows(shown, "brokers")[1] == ["2", "west", "fenced", "1,500", "400"]
    assert rows(shown, "lanes")[1][:2] == ["2", "down"]
    assert [row[1:] for row in rows(shown, "health")] == [["2,100", "3", "40", "0"], ["2,200", "0", "12", "12"]]
    assert rows(shown, "principals") == [["User:<b>ann</b>", "1,000", "300"]]
    assert rows(shown, "changes") == [["2026-07-17T10:00:00Z", "User:ann", "<i>t</i>", "deleted"]]
    assert rows(shown, "types") == [["TopicCreated", "1,100"], ["CreateRejected", "300"]]
    assert "half within 8 ms, 95 % within 40 ms, 99 % within 90 ms, the longest 99 ms" in texts(shown, "#waits p")[0]


def test_report_tiles_and_invariants_have_totals_and_violations(shown: Chrome) -> None:
    assert texts(shown, ".tile b") == ["1,090", "2,200", "3", "12", "1,100", "300", "2"]
    assert texts(shown, ".tile.bad span") == ["partitions without a leader", "violations of 2 invariants"]
    assert [row[2] for row in rows(shown, "invariants")] == ["✓ holds", "✗ 2 violations"]
    assert "offset 17, topic <i>t</i>: 3, expected 1" in rows(shown, "invariants")[1][1]


def test_report_bars_are_proportional_to_their_values(shown: Chrome) -> None:
    """Bars have equal widths, so the areas of colours are proportional to their numbers."""
    outcomes = painted(shown, "outcomes-picture")
    created, rejected = (outcomes[OUTCOMES[name][1]] for name in ("created", "rejected"))
    assert created > 10_000, "much of the picture is green"
    assert created / rejected == pytest.approx(1050 / 300, rel=0.1)
    assert created / outcomes[OUTCOMES["timed-out"][1]] == pytest.approx(1050 / 50, rel=0.2)
    assert painted(shown, "refusals-picture")[VERMILION] > 10_000


def test_report_page_renders_an_empty_log(browser: Chrome, tmp_path: Path) -> None:
    held = Row(topics=0, partitions=0, placeholders=0, leaderless=0)
    nothing: dict[str, Any] = dict.fromkeys(("outcomes", "refusals", "brokers", "lanes", "health", "principals"), ())
    waits = Row(complete=0, never=2)
    report = changed(waits=waits, held=held, checks=REPORT.checks[:1], violations=0, changes=(), **nothing)
    show(browser, report, tmp_path)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert texts(browser, "#waits p") == ["No topic was complete yet; 2 wait or were deleted before."]
    assert texts(browser, "#refusals p") == ["Nothing was rejected."]
    assert texts(browser, "#brokers p") == ["No broker has registered."]
    assert texts(browser, "#invariants p") == ["All 1 hold."]
    assert texts(browser, ".tile.good b") == ["0"]


# Numbers.


COLOURS = """
const [png, done] = arguments, image = new Image();
image.onload = () => {
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d"), counts = {};
  canvas.drawImage(image, 0, 0);
  for (const pixel of new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer)) {
    counts[pixel & 0xffffff] = (counts[pixel & 0xffffff] || 0) + 1;
  }
  done(counts);
};
image.src = `data:image/png;base64,${png}`;
"""


def painted(browser: Chrome, element: str) -> Counter[str]:
    """The number of pixels of each colour in an element; the browser decodes its own screenshot."""
    png = browser.find_element(By.ID, element).screenshot_as_base64
    counts = browser.execute_async_script(COLOURS, png).items()
    return Counter({f"#{int(pixel).to_bytes(3, 'little').hex()}": count for pixel, count in counts})


@pytest.mark.parametrize(
    ("span_ms", "width"),
    [(0, 1), (95, 1), (96, 2), (3_600_000, 60_000), (86_400_000, 1_800_000), (10**12, 2_592_000_000)],
)
def test_report_time_buckets_are_few_and_have_a_round_length(span_ms: int, width: int) -> None:
    assert bucket_ms(span_ms) == width
    assert span_ms // width < BUCKETS_MAX or span_ms == 10**12


def test_report_wait_buckets_have_no_gaps() -> None:
    bins = wait_bins({0: 1, 3: 2, len(WAIT_EDGES_MS) - 1: 5})
    assert [one.low_ms for one in bins] == list(WAIT_EDGES_MS)
    assert [one.high_ms for one in bins] == [*WAIT_EDGES_MS[1:], None]
    assert sum(one.count for one in bins) == 8
    assert (bin_text(bins[0]), bin_text(bins[9]), bin_text(bins[-1])) == (
        "0 ms to 1 ms",
        "500 ms to 1 s",
        "1 h and more",
    )
    assert wait_bins({}) == []


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0 ms"), (7, "7 ms"), (1500, "1.5 s"), (2000, "2 s"), (120_000, "2 min"), (86_400_000, "1 d")],
)
def test_durations_have_a_readable_unit(milliseconds: int, said: str) -> None:
    assert span(milliseconds) == said


def test_every_request_outcome_has_a_distinct_colour() -> None:
    used: list[Any] = [colour for _, colour in OUTCOMES.values()]
    assert len(set(used)) == len(used)
