"""The life cycles of a create request, a topic, a partition and a broker, as tables.

A table lists the allowed events of each state and the next states. `advance` has no other rules: an event that is not
in the table is a bug. Life cycles have no data such as epochs, replicas and answers. The page is generated from them:
`python -m tests.machine.audit.lifecycle > docs/lifecycle.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from events import catalog

LEADER_ELECTED, LEADER_LOST = "LeaderElected", "LeaderLost"
"""The tables' names of a `PartitionChanged` after which another replica leads, and of one after which none does."""


class State(NamedTuple):
    """The meaning of a state, and the next state after each allowed event."""

    meaning: str
    nexts: Mapping[str, str]


class Lifecycle(msgspec.Struct, frozen=True, kw_only=True):
    """A life cycle. The first state is the one before any event."""

    name: str
    about: str
    states: Mapping[str, State]

    @property
    def start(self) -> str:
        return next(iter(self.states))


class OutOfLifecycle(AssertionError):
    """An event that is not allowed in this state: a bug in `decide`, or an incomplete log."""

    def __init__(self, lifecycle: Lifecycle, state: str, event: str) -> None:
        allowed = ", ".join(lifecycle.states[state].nexts) or "nothing: it has ended"
        super().__init__(f"{event} may not come to a {lifecycle.name} that is {state}; allowed: {allowed}")


def event_name(event: catalog.Event) -> str:
    """Returns the tables' name of an event: its type, with other names for changes of leaders."""
    if isinstance(event, catalog.PartitionChanged) and event.has_new_leader:
        return LEADER_ELECTED if event.after.leader >= 0 else LEADER_LOST
    return type(event).__name__


def advance(lifecycle: Lifecycle, state: str, event: catalog.Event) -> str:
    """Returns the state after an event. Raises OutOfLifecycle if the event is not allowed."""
    after = lifecycle.states[state].nexts.get(event_name(event))
    if after is None:
        raise OutOfLifecycle(lifecycle, state, event_name(event))
    return after


_ENDS = ("TopicDeleted", "TopicVanished", "CreationRefused")
_WHILE_THERE = (
    "PartitionsAdded",
    "TopicConfigsChanged",
    LEADER_ELECTED,
    LEADER_LOST,
    "PartitionChanged",
    "TopicDiscovered",
)

CREATE_REQUEST = Lifecycle(
    name="create request",
    about=(
        "One topic of a request to create topics, from arrival to its one terminal answer. `TopicReady`, "
        "`TopicDeleted`, `TopicVanished` and `CreationRefused` concern it while it is the pending create of the topic."
    ),
    states={
        "unknown": State("there is no request", {"CreateRequested": "requested"}),
        "requested": State("the request is recorded", {"CreateRejected": "rejected", "TopicCreated": "created"}),
        "rejected": State("refused by a rule, a policy or the target cluster", {"CreateAnswered": "refused"}),
        "created": State(
            "the topic exists and is incomplete; the client waits",
            {
                "TopicReady": "complete",
                "TopicDeleted": "deleted",
                "TopicVanished": "deleted",
                "CreationRefused": "rejected",
                "CreateAnswered": "timed-out",
            },
        ),
        "complete": State(
            "every partition has a leader and every live broker knows the topic", {"CreateAnswered": "succeeded"}
        ),
        "deleted": State("the topic was deleted before it was complete", {"CreateAnswered": "abandoned"}),
        "refused": State("answered with the error of the rule", {}),
        "succeeded": State("answered NONE", {}),
        "timed-out": State("answered REQUEST_TIMED_OUT; the topic may become complete later", {}),
        "abandoned": State("answered UNKNOWN_TOPIC_OR_PARTITION", {}),
    },
)

TOPIC = Lifecycle(
    name="topic",
    about="One life of a topic, from its creation to its deletion. After that the name may be used again.",
    states={
        "absent": State("no topic of this name", {"TopicCreated": "incomplete", "TopicDiscovered": "ready"}),
        "incomplete": State(
            "created; a leader is missing, or a live broker has not applied it",
            {
                **dict.fromkeys((*_WHILE_THERE, "MetadataPropagated"), "incomplete"),
                "TopicReady": "ready",
                **dict.fromkeys(_ENDS, "absent"),
            },
        ),
        "ready": State(
            "was complete once; it stays ready when brokers fail or join",
            {**dict.fromkeys(_WHILE_THERE, "ready"), "TopicDeleted": "absent", "TopicVanished": "absent"},
        ),
    },
)

PARTITION = Lifecycle(
    name="partition",
    about="One partition of a topic. Epochs rise with each event except its first. Placeholders may remain in any "
    "state. `TopicDiscovered` is not in the table: it replaces the state of all partitions.",
    states={
        "absent": State("no such partition", {"TopicCreated": "led", "PartitionsAdded": "led"}),
        "led": State(
            "a member of the in-sync set leads, or led at the last reconciliation",
            {
                LEADER_ELECTED: "led",
                LEADER_LOST: "leaderless",
                "PartitionChanged": "led",
                **dict.fromkeys(_ENDS, "absent"),
            },
        ),
        "leaderless": State(
            "no member of the in-sync set is live; it keeps that set until one returns",
            {LEADER_ELECTED: "led", "PartitionChanged": "leaderless", **dict.fromkeys(_ENDS, "absent")},
        ),
    },
)

BROKER = Lifecycle(
    name="broker",
    about="One broker id. A live broker that registers as a new incarnation is fenced first.",
    states={
        "unregistered": State("unknown, or removed", {"BrokerRegistered": "fenced"}),
        "fenced": State(
            "registered; it leads no partitions and gets no new replicas",
            {
                "BrokerRegistered": "fenced",
                "BrokerUnfenced": "live",
                "LogDirsChanged": "fenced",
                "BrokerUnregistered": "unregistered",
            },
        ),
        "live": State(
            "it leads, follows and gets new replicas",
            {
                "BrokerFenced": "fenced",
                "BrokerLeaving": "leaving",
                "LogDirsChanged": "live",
                "BrokerUnregistered": "unregistered",
            },
        ),
        "leaving": State(
            "in controlled shutdown: it serves until its leaderships have moved",
            {"BrokerFenced": "fenced", "LogDirsChanged": "leaving", "BrokerUnregistered": "unregistered"},
        ),
    },
)

LIFECYCLES = (CREATE_REQUEST, TOPIC, PARTITION, BROKER)


REQUEST_EVENTS = catalog.CreateRequested | catalog.CreateRejected | catalog.TopicCreated | catalog.CreateAnswered
ENDS = catalog.TopicReady | catalog.TopicDeleted | catalog.TopicVanished | catalog.CreationRefused
NAMED = {event for lifecycle in LIFECYCLES for state in lifecycle.states.values() for event in state.nexts}
"""The events that have a life cycle."""


class Lives:
    """The state of every request, topic, partition and broker according to the tables."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], str] = {}
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], str] = {}
        self.brokers: dict[int, str] = {}
        self._waiting: dict[str, tuple[str, str]] = {}

    def see_all(self, records: Iterable[catalog.Recorded]) -> Lives:
        """Apply records. Raises OutOfLifecycle for an event that is not allowed."""
        for record in records:
            self.see(record.event)
        return self

    def see(self, event: Any) -> None:
        if event_name(event) not in NAMED:
            return
        if hasattr(event, "broker_id"):
            _move(BROKER, self.brokers, event.broker_id, event)
            return
        self._see_request(event)
        if not isinstance(event, catalog.CreateRequested | catalog.CreateRejected | catalog.CreateAnswered):
            self._see_partitions(event)
            _move(TOPIC, self.topics, event.topic, event)

    def _see_request(self, event: Any) -> None:
        if isinstance(event, REQUEST_EVENTS):
            key = (event.request_id, event.topic)
            _move(CREATE_REQUEST, self.requests, key, event)
            if isinstance(event, catalog.TopicCreated):
                self._waiting[event.topic] = key
            elif isinstance(event, catalog.CreateAnswered) and self._waiting.get(event.topic) == key:
                del self._waiting[event.topic]
        elif isinstance(event, ENDS) and event.topic in self._waiting:
            _move(CREATE_REQUEST, self.requests, self._waiting[event.topic], event)

    def _see_partitions(self, event: Any) -> None:
        if isinstance(event, catalog.TopicCreated | catalog.PartitionsAdded):
            first = event.first if isinstance(event, catalog.PartitionsAdded) else 0
            indices = list(range(first, first + len(event.partitions)))
        elif isinstance(event, catalog.PartitionChanged):
            indices = [event.partition]
        elif isinstance(event, catalog.TopicDiscovered):
            self._see_anew(event)
            return
        elif isinstance(event, catalog.TopicDeleted | catalog.TopicVanished | catalog.CreationRefused):
            indices = [index for topic, index in self.partitions if topic == event.topic]
        else:
            return
        for index in indices:
            _move(PARTITION, self.partitions, (event.topic, index), event)

    def _see_anew(self, event: catalog.TopicDiscovered) -> None:
        """An imported topic replaces all partitions; the table of partitions does not cover this."""
        for key in [key for key in self.partitions if key[0] == event.topic]:
            del self.partitions[key]
        for index, partition in enumerate(event.partitions):
            self.partitions[event.topic, index] = "led" if partition.leader >= 0 else "leaderless"


def _move(lifecycle: Lifecycle, states: dict[Any, str], key: Any, event: Any) -> None:
    after = advance(lifecycle, states.get(key, lifecycle.start), event)
    if after == lifecycle.start:
        states.pop(key, None)
    else:
        states[key] = after


HEAD = """# Life cycles

The states of create requests, topics, partitions and brokers, for readers of the event log. `python -m
tests.machine.audit.lifecycle` writes this page from its tables, against which tests check every log that they write.

An event that is not in a diagram is a bug, or a sign of a damaged log. `LeaderElected` and `LeaderLost` are a
`PartitionChanged` after which another replica leads, or none.
"""


def page() -> str:
    return "\n".join([HEAD, *(section(lifecycle) for lifecycle in LIFECYCLES)])


def section(lifecycle: Lifecycle) -> str:
    """Returns the section of a life cycle: description, diagram, states."""
    lines = [f"## A {lifecycle.name}", "", lifecycle.about, "", "```mermaid", *_diagram(lifecycle), "```", ""]
    lines += ["|state|means|", "|---|---|"]
    lines += [f"|{name}|{state.meaning}|" for name, state in lifecycle.states.items()]
    return "\n".join([*lines, ""])


def _diagram(lifecycle: Lifecycle) -> list[str]:
    """Returns a Mermaid state diagram; events with the same next state share an arrow."""
    lines = ["stateDiagram-v2", f"    [*] --> {_id(lifecycle.start)}"]
    for state, (_, nexts) in lifecycle.states.items():
        by_target: dict[str, list[str]] = {}
        for event, after in nexts.items():
            by_target.setdefault(after, []).append(event)
        for after, events in by_target.items():
            lines.append(f"    {_id(state)} --> {_id(after)}: {', '.join(events)}")
        if not nexts:
            lines.append(f"    {_id(state)} --> [*]")
    return lines


def _id(state: str) -> str:
    """Mermaid allows no dashes in state names."""
    return state.replace("-", "_")


if __name__ == "__main__":
    sys.stdout.write(page())
