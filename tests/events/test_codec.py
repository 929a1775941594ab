"""The event catalog: documented, frozen, and extended only by fields at the end. The codec: canonical bytes that
round-trip, errors for invalid bytes, hidden secrets. Golden logs are read unchanged."""

import ast
import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import access, catalog
from events.catalog import EVENT_TYPES, EVENT_VERSION, Cause, Event, Recorded, ResourceConfigsChanged, TopicReady
from events.codec import EventDecodeError, decode_event, encode_event, topic_of, value_without_secrets, without_secrets
from events.names import Offset, RequestId, TopicName
from events.values import Fact
from projections.text.wording import event_text
from tests.events.golden import ADOPTED, FOLDER, FOLLOWED, HISTORIES, hash_of, lines_of, state_hash
from tests.machine.audit.lifecycle import Lives

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Returns a strategy for the values of a declared type."""
    match kind:
        case msgspec.inspect.IntType():
            return _INT64
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False)
        case msgspec.inspect.StrType():
            return _TEXT
        case msgspec.inspect.BytesType():
            return st.binary(max_size=20)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType():
            return st.sampled_from(kind.values)
        case msgspec.inspect.UnionType():
            return st.one_of([_values(each) for each in kind.types])
        case msgspec.inspect.VarTupleType():
            return st.lists(_values(kind.item_type), max_size=3).map(tuple)
        case msgspec.inspect.TupleType():
            return st.tuples(*[_values(each) for each in kind.item_types])
        case msgspec.inspect.StructType():
            return st.builds(kind.cls, *[_values(each.type) for each in kind.fields])
        case _:
            raise AssertionError(f"the catalog has a type that is new here: {kind}")


_events = st.one_of([_values(msgspec.inspect.type_info(kind)) for kind in EVENT_TYPES])
_causes = st.builds(Cause, _TEXT, _TEXT)


@given(_events, _INT64, _causes, st.integers(0, 2**63))
def test_every_event_round_trips(event: Event, at_ms: int, cause: Cause, offset: int) -> None:
    value = encode_event(at_ms, cause, event)
    back = decode_event(offset, value)
    assert back == Recorded(Offset(offset), at_ms, cause, event), "the event changed in the round trip"
    assert encode_event(back.at_ms, back.cause, back.event) == value, "the bytes are not canonical"


@given(_events, _INT64, _causes)
def test_the_topic_is_read_without_decoding_the_event(event: Event, at_ms: int, cause: Cause) -> None:
    value = encode_event(at_ms, cause, event)
    assert topic_of(7, value) == getattr(event, "topic", None), "the topic differs"


@given(_events, _causes)
def test_encoded_events_contain_no_maps(event: Event, cause: Cause) -> None:
    def walk(value: Any) -> None:
        assert not isinstance(value, dict), "maps have no canonical order"
        for item in value if isinstance(value, list) else ():
            walk(item)

    walk(msgspec.msgpack.decode(encode_event(7, cause, event)))


@given(_events, _causes)
def test_truncated_events_are_rejected(event: Event, cause: Cause) -> None:
    value = encode_event(7, cause, event)
    for end in range(len(value)):
        with pytest.raises(EventDecodeError):
            decode_event(0, value[:end])


@given(_events, _causes, st.binary(min_size=1, max_size=5))
def test_trailing_bytes_after_an_event_are_rejected(event: Event, cause: Cause, rest: bytes) -> None:
    with pytest.raises(EventDecodeError):
        decode_event(0, encode_event(7, cause, event) + rest)


@given(st.binary(max_size=60))
def test_random_bytes_decode_to_an_event_or_are_rejected(value: bytes) -> None:
    try:
        record = decode_event(3, value)
    except EventDecodeError:
        return
    assert decode_event(3, encode_event(record.at_ms, record.cause, record.event)) == record, "can be encoded"


def _raw(**changes: Any) -> bytes:
    raw = {"version": EVENT_VERSION, "at_ms": 7, "cause": ["CreateTopic", "q"], "event": ["TopicReady", "t"]}
    return msgspec.msgpack.encode(list((raw | changes).values()))


def test_encoded_event_bytes_are_stable() -> None:
    ready = TopicReady(TopicName("t"))
    assert encode_event(7, Cause("CreateTopic", RequestId("q")), ready) == _raw()
    assert decode_event(0, _raw()).event == ready


REFUSED = {
    "newer version": (_raw(version=2), "written in event version 2; this release reads up to 1"),
    "newer version of an unknown event": (_raw(version=9, event=["X"]), "written in event version 9"),
    "version before the first": (_raw(version=0), "written in event version 0; this release reads up to 1"),
    "unknown type": (_raw(event=["TopicRenamed", "t"]), "unknown event type 'TopicRenamed'"),
    "type that is no text": (_raw(event=[["TopicReady"], "t"]), r"unknown event type \['TopicReady'\]"),
    "no type": (_raw(event=[]), "unknown event type None"),
    "a field too few": (_raw(event=["TopicReady"]), "malformed event of type 'TopicReady'"),
    "a field too many": (_raw(event=["TopicReady", "t", 1]), "malformed event of type 'TopicReady'"),
    "a field of another type": (_raw(event=["TopicReady", 5]), "malformed event of type 'TopicReady'"),
    "no array": (msgspec.msgpack.encode({"version": 1}), "not an event"),
    "a version that is no number": (_raw(version="1"), "not an event"),
    "text that is no UTF-8": (_raw(event=["TopicReady", "tt"]).replace(b"tt", b"t\xff"), "not an event"),
    "nested too deep": (_raw(event=["X", 0])[:-1] + b"\x91" * 100_000 + b"\xc0", "not an event"),
    "nothing": (b"", "not an event"),
}


@pytest.mark.parametrize(("value", "why"), REFUSED.values(), ids=REFUSED)
def test_invalid_events_are_rejected(value: bytes, why: str) -> None:
    with pytest.raises(EventDecodeError, match=f"event at offset 12: {why}"):
        decode_event(12, value)


@pytest.mark.parametrize("case", sorted(set(REFUSED) - {"a field too many"}))  # that field is after the topic
def test_invalid_events_have_no_topic(case: str) -> None:
    value, why = REFUSED[case]
    with pytest.raises(EventDecodeError, match=f"event at offset 12: {why}"):
        topic_of(12, value)


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
    assert b"PLANTED" in value, "the log has the password, like Kafka's"
    assert b"PLANTED" not in value_without_secrets(record, value)


def test_previous_values_of_password_configs_are_hidden() -> None:
    before = (("ssl.key.password", "PLANTED"),)
    shown = without_secrets(ResourceConfigsChanged(ID, 4, "1", (), "User:admin", None, "10.0.0.1", before))
    assert shown == ResourceConfigsChanged(
        ID, 4, "1", (), "User:admin", None, "10.0.0.1", (("ssl.key.password", "(hidden)"),)
    )


def test_configs_without_secrets_are_unchanged() -> None:
    event = changed(("log.retention.ms", "5"), ("listener.name.out.ssl.keystore.location", "/k"))
    assert without_secrets(event) is event
    assert "listener.name.out.ssl.keystore.location=/k" in event_text(event)


RECORDED = Path(__file__).parents[1] / "golden" / "events" / "catalog.txt"
FACTS = sorted(
    {
        kind
        for module in (access, catalog)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Fact) and kind is not Fact
    },
    key=lambda kind: kind.__name__,
)

facts = pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)


def _declared(kind: type) -> list[str]:
    """The fields of a struct, each with its type as in the source."""
    (declared,) = ast.parse(inspect.getsource(kind)).body
    fields = [each for each in getattr(declared, "body", ()) if isinstance(each, ast.AnnAssign)]
    return [f"{ast.unparse(each.target)} {ast.unparse(each.annotation)}" for each in fields]


def test_event_catalog_matches_the_recorded_one() -> None:
    """A field may be added at the end, with a default. Other changes need a new event version and an upcast.

    Update `tests/golden/events/catalog.txt` by hand after such a change.
    """
    version, *rows = RECORDED.read_text().splitlines()
    assert version == f"version {EVENT_VERSION}"
    fields = {kind.__name__: ", ".join(_declared(kind)) for kind in FACTS}
    assert dict(row.split(": ", 1) for row in rows) == fields


@facts
def test_event_classes_are_frozen_and_array_like(kind: type[Fact]) -> None:
    config = kind.__struct_config__
    assert (config.frozen, config.array_like, config.forbid_unknown_fields) == (True, True, True)
    assert (kind in EVENT_TYPES) <= (config.tag == kind.__name__), "the tag is the event's name"


@facts
def test_event_classes_have_docstrings(kind: type[Fact]) -> None:
    assert inspect.getdoc(kind) != inspect.getdoc(Fact), f"{kind.__name__} has no docstring"


good = pytest.mark.parametrize("name", [*HISTORIES, ADOPTED, FOLLOWED])


def _read(name: str) -> list[Recorded]:
    return [decode_event(offset, value) for offset, value in enumerate(lines_of(name))]


@good
def test_golden_logs_fold_to_the_recorded_state_hash(name: str) -> None:
    assert state_hash(_read(name)) == hash_of(name)


@good
def test_golden_logs_are_canonical(name: str) -> None:
    assert [encode_event(r.at_ms, r.cause, r.event) for r in _read(name)] == lines_of(name)


@pytest.mark.parametrize("name", [*HISTORIES, FOLLOWED])
def test_golden_logs_pass_the_lifecycles(name: str) -> None:
    Lives().see_all(_read(name))


def test_every_event_type_occurs_in_a_golden_log() -> None:
    found = {type(record.event) for name in (*HISTORIES, ADOPTED, FOLLOWED) for record in _read(name)}
    assert found == set(EVENT_TYPES)


def test_every_golden_log_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.log")} == {*HISTORIES, ADOPTED, FOLLOWED}
