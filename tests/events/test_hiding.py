"""Secrets in events are hidden wherever events are shown, and only there."""

from __future__ import annotations

import pytest

from events.catalog import Cause, Recorded, ResourceConfigsChanged
from events.codec import encode_event
from events.hiding import value_without_secrets, without_secrets
from events.names import Offset, RequestId
from projections.text.wording import event_text

ID = RequestId("q")


def changed(*configs: tuple[str, str]) -> ResourceConfigsChanged:
    return ResourceConfigsChanged(ID, 4, "1", configs, "User:admin", None)


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.out.ssl.keystore.password",
        "listener.name.out.ssl.keystore.key",
        "listener.name.out.plain.sasl.jaas.config",
        "ssl.key.password",
    ],
)
def test_passwords_of_brokers_are_hidden(name: str) -> None:
    event = changed(("log.retention.ms", "5"), (name, "PLANTED"))
    shown = without_secrets(event)
    assert isinstance(shown, ResourceConfigsChanged)
    assert shown.configs == (("log.retention.ms", "5"), (name, "(hidden)"))
    assert event_text(event) == event_text(shown)
    assert "PLANTED" not in event_text(event)
    record = Recorded(Offset(0), 1, Cause("AlterResourceConfigs", ID), event)
    value = encode_event(record.at_ms, record.cause, event)
    assert b"PLANTED" in value, "the log has it, as Kafka's has"
    assert b"PLANTED" not in value_without_secrets(record, value)


def test_what_a_password_was_is_hidden_too() -> None:
    before = (("ssl.key.password", "PLANTED"),)
    shown = without_secrets(ResourceConfigsChanged(ID, 4, "1", (), "User:admin", None, "10.0.0.1", before))
    assert shown == ResourceConfigsChanged(
        ID, 4, "1", (), "User:admin", None, "10.0.0.1", (("ssl.key.password", "(hidden)"),)
    )


def test_what_is_no_secret_is_shown_as_it_is() -> None:
    event = changed(("log.retention.ms", "5"), ("listener.name.out.ssl.keystore.location", "/k"))
    assert without_secrets(event) is event
    assert "listener.name.out.ssl.keystore.location=/k" in event_text(event)
