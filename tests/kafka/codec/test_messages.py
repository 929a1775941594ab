"""Messages compared with kio's classes: the same fields and defaults in every version."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from controller.kafka.api_keys import GENERATED
from controller.kafka.codec.codec import load_layout
from controller.kafka.generate import sources
from controller.kafka.messages import ZERO_UUID, Message
from controller.kafka.messages.access import SaslAuthenticateRequest, ScramCredentialUpsertion
from controller.kafka.schema import Direction, Field, Layout
from tests.kafka.codec import schemas
from tests.kafka.codec.samples import EVERY_VERSION, EVERY_VERSION_IDS, KIO_LACKS, kafkas_name, kio_class, leaves

WANTED_DEFAULTS = {
    # Fetch has -1, FetchSnapshot 0; FetchSnapshot's own fields default to an entity of zeros.
    ("FetchSnapshotId", "end_offset"): -1,
    ("FetchSnapshotId", "epoch"): -1,
    ("LeaderIdAndEpoch", "leader_id"): -1,
    ("LeaderIdAndEpoch", "leader_epoch"): -1,
    ("Topology", "subtopologies"): None,  # kio has no default
}


def test_generated_modules_are_current() -> None:
    for path, source in zip(GENERATED, sources(), strict=True):
        assert path.read_text() == source, "run python -m controller.kafka.generate"


def test_secrets_are_not_in_the_repr_of_a_message() -> None:
    assert repr(SaslAuthenticateRequest(auth_bytes=b"secret")) == "SaslAuthenticateRequest(hidden)"
    assert "secret" not in repr(ScramCredentialUpsertion(salted_password=b"secret"))


@pytest.mark.parametrize(("api_key", "version", "direction"), EVERY_VERSION, ids=EVERY_VERSION_IDS)
def test_every_field_of_every_version_has_kafkas_default(api_key: int, version: int, direction: Direction) -> None:
    if (api_key, version) in KIO_LACKS:
        return
    layout = load_layout(api_key, version, direction)
    _compare(kio_class(api_key, version, direction), layout, direction)


def _compare(entity: Any, layout: Layout, direction: Direction) -> None:
    ours = {field.name: field for field in layout.fields + layout.tagged}
    theirs = dataclasses.fields(entity)
    assert len(ours) == len(theirs), f"fields of {entity}"
    for field in theirs:
        own = ours[kafkas_name(field)]
        _compare_defaults(layout.message, field, own, direction)
        if own.entity is not None:
            _compare(next(arg for arg in leaves(field.type) if dataclasses.is_dataclass(arg)), own.entity, direction)


def _compare_defaults(message: type[Message], field: dataclasses.Field[Any], own: Field, direction: Direction) -> None:
    where = f"default of {message.__name__}.{own.name}"
    default = getattr(message(), own.name)
    if (message.__name__, own.name) in WANTED_DEFAULTS:
        assert default is WANTED_DEFAULTS[message.__name__, own.name], where
    elif own.is_array and default is None:
        assert direction == "request" or field.default is None, where
    elif field.default is dataclasses.MISSING:
        assert own.entity is not None or default in (None, 0, False, "", b"", (), ZERO_UUID), where
    elif own.kind == "uuid" and not own.is_array:
        assert (field.default, default) == (None, ZERO_UUID), where
    elif isinstance(field.default, timedelta):
        assert default == field.default / timedelta(milliseconds=1), where
    elif own.entity is None and own.name != "log_append_time_ms":
        assert default == field.default, where


def test_schemas_are_kafkas() -> None:
    """Those of the newest Kafka, and fields of old versions that it has dropped."""
    assert schemas.FILE.read_text() == schemas.text(), "run python -m tests.kafka.codec.schemas"
