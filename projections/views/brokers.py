"""The views of brokers, of settings and of the rules for changes of topics, and the pure fold that computes brokers and
settings from events."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from controller.machine.apply import CannotApply, concerns_topic
from controller.machine.rules.reading import recorded_rules
from controller.machine.rules.rule import Rule
from controller.machine.state import BROKERS
from events import catalog
from events.catalog import Configs, Recorded
from events.names import BrokerId
from projections.views.view import AsOfView, times, view_of


class EndpointView(msgspec.Struct, frozen=True, gc=False):
    """A listener of a broker."""

    name: str
    host: str
    port: int


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker, fenced or live since `changed_at` because of `reason`. A fenced broker does not lead, and
    gets no replicas."""

    broker_id: BrokerId
    fenced: bool
    leaving: bool = False
    """In controlled shutdown: it serves, but gets no leaderships and no replicas."""
    cordoned: bool = False
    """All log directories are cordoned: no new replicas are placed on it (KIP-1066)."""
    rack: str | None
    endpoints: tuple[EndpointView, ...]
    broker_epoch: int
    incarnation: str
    registered_at: str
    registered_at_ms: int
    changed_at: str
    changed_at_ms: int
    changed_offset: int
    reason: str


class BrokersView(msgspec.Struct, frozen=True):
    """The brokers by id, the ids of the live ones, and the settings that decisions depend on, by Kafka's names."""

    brokers: tuple[BrokerView, ...]
    live: tuple[int, ...]
    settings: dict[str, str]
    release: str
    as_of: AsOfView


class SimulatedBrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a simulated broker; `/brokers` has its state in the controller."""

    broker_id: int
    rack: str
    running: bool
    delay_ms: int


class ClusterRow(msgspec.Struct, frozen=True):
    """Brokers, settings by Kafka's names, the release that decides, the rules for changes of topics, and the dynamic
    configs of all brokers."""

    brokers: Mapping[BrokerId, BrokerView] = {}
    settings: tuple[tuple[str, str], ...] = ()
    release: str = ""
    rules: RulesVersionView | None = None
    dynamic_defaults: Configs = ()

    @property
    def live(self) -> frozenset[BrokerId]:
        """The brokers that are neither fenced nor in controlled shutdown."""
        return frozenset(key for key, broker in self.brokers.items() if not broker.fenced and not broker.leaving)

    def view(self, as_of: AsOfView) -> BrokersView:
        by_id = tuple(one for _, one in sorted(self.brokers.items()))
        return BrokersView(by_id, tuple(sorted(self.live)), dict(self.settings), self.release, as_of)


NO_CLUSTER = ClusterRow()


def fold_cluster(row: ClusterRow, record: Recorded) -> ClusterRow:
    """The brokers and settings after one more event of the cluster. Raises CannotApply for a broker that is not
    registered."""
    match record.event:
        case catalog.BrokerRegistered() as event:
            return _with(row, _registered(record, event))
        case catalog.BrokerFenced() | catalog.BrokerUnfenced() as event:
            is_fenced = isinstance(event, catalog.BrokerFenced)
            return _changed(row, record, event.broker_id, event.reason, fenced=is_fenced)
        case catalog.BrokerLeaving() as event:
            return _changed(row, record, event.broker_id, "in controlled shutdown", leaving=True)
        case catalog.LogDirsChanged() as event:
            reason = "all log directories are cordoned" if event.is_cordoned else "log directories changed"
            return _changed(row, record, event.broker_id, reason, cordoned=event.is_cordoned)
        case catalog.BrokerUnregistered() as event:
            _known(row, record, event.broker_id)
            return replace(row, brokers={key: one for key, one in row.brokers.items() if key != event.broker_id})
        case catalog.SettingsChanged() as event:
            return replace(row, settings=event.settings, release=event.release)
        case catalog.RulesApplied() as event:
            version = view_of(RulesVersionView, event, offset=record.offset, **times(applied=record.at_ms))
            return replace(row, rules=version)
        case catalog.ResourceConfigsChanged(kind=kind, name="") as event if kind == BROKERS:
            return replace(row, dynamic_defaults=event.configs)
        case event if concerns_topic(event):
            raise CannotApply(record, "it concerns no broker and no setting")
        case _:
            return row


def _registered(record: Recorded, event: catalog.BrokerRegistered) -> BrokerView:
    endpoints = tuple(view_of(EndpointView, one) for one in event.endpoints)
    state = {"fenced": True, "leaving": False, "cordoned": False, "reason": "registered"}
    at = times(registered=record.at_ms, changed=record.at_ms)
    return view_of(BrokerView, event, endpoints=endpoints, changed_offset=record.offset, **state, **at)


def _known(row: ClusterRow, record: Recorded, broker_id: BrokerId) -> BrokerView:
    known = row.brokers.get(broker_id)
    if known is None:
        raise CannotApply(record, f"broker {broker_id} is not registered")
    return known


def _changed(row: ClusterRow, record: Recorded, broker_id: BrokerId, reason: str, **changes: bool) -> ClusterRow:
    newest = {"changed_offset": record.offset, **times(changed=record.at_ms)}
    return _with(row, replace(_known(row, record, broker_id), reason=reason, **newest, **changes))


def _with(row: ClusterRow, broker: BrokerView) -> ClusterRow:
    return replace(row, brokers={**row.brokers, broker.broker_id: broker})


class RulesVersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the rules: its text, and who applied it when. `is_file` is true if the controller applied the file
    of its settings."""

    number: int
    sha256: str
    principal: str
    is_file: bool
    applied_at: str
    applied_at_ms: int
    offset: int
    text: str


class ExceptionView(msgspec.Struct, frozen=True):
    """An exception of a rule. An expired one has no effect."""

    applies_to: str
    reason: str
    until: str
    is_expired: bool


class RuleView(msgspec.Struct, frozen=True):
    """A rule. `definition` has its keys and values as text."""

    name: str
    mode: str
    on: tuple[str, ...]
    definition: dict[str, str]
    exceptions: tuple[ExceptionView, ...]


def rule_views(text: str, at_ms: int) -> tuple[RuleView, ...]:
    """The rules and defaults of a text, in order."""
    rules = recorded_rules(text)
    defaults = (RuleView(one.name, "default", ("create",), one.written, ()) for one in rules.defaults)
    return (*(_rule(one, at_ms) for one in rules.rules), *defaults)


def _rule(rule: Rule, at_ms: int) -> RuleView:
    exceptions = (view_of(ExceptionView, one, is_expired=at_ms >= one.until_ms) for one in rule.exceptions)
    return view_of(RuleView, rule, definition=rule.written, exceptions=tuple(exceptions))
