"""Events as they may be shown: with their secrets hidden.

The log alone holds secrets, because logins are checked by them. Whatever shows, exports or prints events takes them
from here.
"""

from __future__ import annotations

from msgspec.structs import replace

from events.access import LoginSecretDrawn, ScramCredentialSet
from events.catalog import Configs, Event, Recorded, ResourceConfigsChanged
from events.codec import encode_event

HIDDEN = b"(hidden)"
"""Stands where a secret is."""
_SECRETS = (
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "sasl.jaas.config",
)
"""The dynamic configs of brokers that are secrets in Kafka, behind whatever listener's name."""


def without_secrets(event: Event) -> Event:
    """The event with its secrets hidden; the same one where it has none."""
    if isinstance(event, ScramCredentialSet):
        return replace(event, salt=HIDDEN, stored_key=HIDDEN, server_key=HIDDEN)
    if isinstance(event, LoginSecretDrawn):
        return replace(event, secret=HIDDEN)
    if isinstance(event, ResourceConfigsChanged):
        shown, before = shown_configs(event), None if event.before is None else _shown(event.before)
        return (
            event if (shown, before) == (event.configs, event.before) else replace(event, configs=shown, before=before)
        )
    return event


def shown_configs(event: ResourceConfigsChanged) -> Configs:
    """The configs of brokers, or of what else has them, with those hidden that are secrets."""
    return _shown(event.configs)


def _shown(configs: Configs) -> Configs:
    return tuple((name, HIDDEN.decode() if name.endswith(_SECRETS) else value) for name, value in configs)


def value_without_secrets(record: Recorded, value: bytes) -> bytes:
    """The canonical bytes of an event with its secrets hidden; `value` itself where it has none."""
    shown = without_secrets(record.event)
    return value if shown is record.event else encode_event(record.at_ms, record.cause, shown)
