"""docs/settings.md, drawn from the tables: `python -m controller.settings.page > docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from controller.machine.configs.table import KAFKA_VERSION, TOPIC_CONFIGS, TopicConfig
from controller.machine.configs.topic_configs import TIERED_STORAGE_KEY
from controller.machine.configs.values import allowed_text
from controller.settings.security import Setting
from controller.settings.server import POLICY_PREFIXES, SETTINGS

_HEAD = """\
# Settings

<!-- Drawn from the tables by `python -m controller.settings.page > docs/settings.md`. A test compares them. -->

`topicwright serve --config FILE` reads a Kafka-style properties file, and `--set KEY=VALUE` comes after it; of a key
given twice the last value counts. Unknown keys, or a value that is not allowed, stop the start with exit code 2.
Keys are Kafka's own where Kafka has one.

A broker's `server.properties` can be taken over as it is. What Kafka's brokers alone have, as `num.io.threads`, is
ignored there, and named in a warning. Keys that begin with `ssl.`, `sasl.`, `principal.builder.` or `authorizer.`
decide who may connect, so an unknown one of these still stops the start.
"""


def settings_page() -> str:
    """The page, in Markdown."""
    prefixes = " or ".join(f"`{prefix}`" for prefix in POLICY_PREFIXES)
    return "\n".join(
        (
            _HEAD,
            "## Of the server",
            "",
            "Those marked *decides* are recorded in the log, because decisions depend on them.",
            "",
            *_table(("Setting", "Default", "Allowed", "What it is for"), map(_server_row, SETTINGS)),
            "",
            f"Any other key that begins with {prefixes} is given to the policies as it is.",
            "",
            "## Of topics",
            "",
            f"Every topic-level setting of Apache Kafka {KAFKA_VERSION}. A topic that does not set one has the first",
            "of the broker-level settings named beside it that is given, and else the default. A number in minutes or",
            "hours is converted. Broker-level settings are given like those of the server, and recorded in the log.",
            "",
            f"Topics can have `remote.storage.enable` only where the broker-level `{TIERED_STORAGE_KEY}` is true.",
            "",
            *_table(
                ("Topic config", "Default", "Allowed", "Broker-level settings", "What it is for"),
                map(_topic_row, TOPIC_CONFIGS),
            ),
            "",
        )
    )


def _server_row(setting: Setting) -> tuple[str, ...]:
    text = setting.documentation + (" *Decides.*" if setting.decides else "")
    return (f"`{setting.key}`", _code(setting.default), setting.allowed_text, text)


def _topic_row(row: TopicConfig) -> tuple[str, ...]:
    names = ", ".join(f"`{synonym.name}`" for synonym in row.synonyms)
    return (f"`{row.name}`", _code(row.default), allowed_text(row.kind, row.allowed), names, row.documentation)


def _code(default: str | None) -> str:
    return f"`{default}`" if default else ""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield _line(row)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
