"""The life cycles as tables: a create request, a topic, a partition, a broker.

A table says, for each state, which events may come and where they lead. It is the whole rule: `advance` has no special
cases, an event that the table does not have is a bug, and docs/lifecycle.md is drawn from the tables by
`lifecycle_page`.

What a life cycle does not do: it holds no data. Epochs, replicas and answers are the state's and the events' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from events.catalog import Event, LeaderElected, PartitionChanged

LEADER_LOST = "LeaderLost"
"""How the tables call a `LeaderElected` that leaves a partition without a leader (-1)."""
PARTITION_LED, PARTITION_UNLED = "PartitionLed", "PartitionUnled"
"""How the tables call a `PartitionChanged` with a leader, and one that leaves a partition without (-1)."""


class RequestState(StrEnum):
    """How far a create request is, for one of its topics."""

    UNKNOWN = "unknown"
    ASKED = "asked"
    REJECTED = "rejected"
    CREATED = "created"
    COMPLETE = "complete"
    DELETED = "deleted"
    REFUSED = "refused"
    SUCCEEDED = "succeeded"
    TIMED_OUT = "timed-out"
    ABANDONED = "abandoned"


class TopicState(StrEnum):
    """Whether a topic is there, and was complete once."""

    ABSENT = "absent"
    INCOMPLETE = "incomplete"
    READY = "ready"


class PartitionState(StrEnum):
    """Whether a partition is there, and has a leader."""

    ABSENT = "absent"
    LED = "led"
    LEADERLESS = "leaderless"


class BrokerState(StrEnum):
    """Whether a broker is known, and may lead and be placed on."""

    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    LIVE = "live"
    LEAVING = "leaving"


class Lifecycle(msgspec.Struct, frozen=True, kw_only=True):
    """One life cycle. `table` goes from a state to the events that may come in it, and the states they lead to."""

    name: str
    about: str
    start: str
    table: Mapping[str, Mapping[str, str]]
    meaning: Mapping[str, str]


class OutOfLifecycle(AssertionError):
    """An event that may not come in this state: a bug in `decide`, or a log that is not whole."""

    def __init__(self, lifecycle: Lifecycle, state: str, event: str) -> None:
        allowed = ", ".join(lifecycle.table[state]) or "nothing: it has ended"
        super().__init__(f"{event} may not come to a {lifecycle.name} that is {state}; allowed: {allowed}")


def event_name(event: Event) -> str:
    """What the tables call an event: its type, but for elections (of real brokers) and those that nobody won."""
    if isinstance(event, LeaderElected) and event.leader < 0:
        return LEADER_LOST
    if isinstance(event, PartitionChanged) and event.leader is not None:
        return PARTITION_LED if event.leader >= 0 else PARTITION_UNLED
    return type(event).__name__


def advance(lifecycle: Lifecycle, state: str, event: Event) -> str:
    """The state after an event. Raises OutOfLifecycle if the event may not come in this state."""
    after = lifecycle.table[state].get(event_name(event))
    if after is None:
        raise OutOfLifecycle(lifecycle, state, event_name(event))
    return after


CREATE_REQUEST = Lifecycle(
    name="create request",
    about=(
        "One topic of a request to create topics, from arrival to its one terminal answer. `TopicReady`, "
        "`TopicDeleted`, `TopicVanished` and `CreationRefused` concern it while it is the one that waits for the topic."
    ),
    start=RequestState.UNKNOWN,
    table={
        RequestState.UNKNOWN: {"CreateRequested": RequestState.ASKED},
        RequestState.ASKED: {"CreateRejected": RequestState.REJECTED, "TopicCreated": RequestState.CREATED},
        RequestState.REJECTED: {"CreateAnswered": RequestState.REFUSED},
        RequestState.CREATED: {
            "TopicReady": RequestState.COMPLETE,
            "TopicDeleted": RequestState.DELETED,
            "TopicVanished": RequestState.DELETED,
            "CreationRefused": RequestState.REJECTED,
            "CreateAnswered": RequestState.TIMED_OUT,
        },
        RequestState.COMPLETE: {"CreateAnswered": RequestState.SUCCEEDED},
        RequestState.DELETED: {"CreateAnswered": RequestState.ABANDONED},
        RequestState.REFUSED: {},
        RequestState.SUCCEEDED: {},
        RequestState.TIMED_OUT: {},
        RequestState.ABANDONED: {},
    },
    meaning={
        RequestState.UNKNOWN: "nobody requested it",
        RequestState.ASKED: "the request is recorded",
        RequestState.REJECTED: "a rule, a policy or the cluster said no",
        RequestState.CREATED: "the topic exists and is not complete yet; the client waits",
        RequestState.COMPLETE: "every partition has a leader and every live broker knows the topic",
        RequestState.DELETED: "the topic was deleted before it was complete",
        RequestState.REFUSED: "answered with the error of the rule",
        RequestState.SUCCEEDED: "answered NONE",
        RequestState.TIMED_OUT: "answered REQUEST_TIMED_OUT; the topic may become complete later",
        RequestState.ABANDONED: "answered UNKNOWN_TOPIC_OR_PARTITION",
    },
)

_ENDS = ("TopicDeleted", "TopicVanished", "CreationRefused")
_WHILE_THERE = (
    "PartitionsAdded",
    "TopicConfigsChanged",
    "LeaderElected",
    LEADER_LOST,
    "IsrChanged",
    "PartitionChanged",
    PARTITION_LED,
    PARTITION_UNLED,
    "PlaceholderFilled",
    "TopicDiscovered",
)

TOPIC = Lifecycle(
    name="topic",
    about="One life of a topic, from its creation to its deletion; the name may be taken again after that.",
    start=TopicState.ABSENT,
    table={
        TopicState.ABSENT: {"TopicCreated": TopicState.INCOMPLETE, "TopicDiscovered": TopicState.READY},
        TopicState.INCOMPLETE: {
            **dict.fromkeys((*_WHILE_THERE, "MetadataPropagated"), TopicState.INCOMPLETE),
            "TopicReady": TopicState.READY,
            **dict.fromkeys(_ENDS, TopicState.ABSENT),
        },
        TopicState.READY: {
            **dict.fromkeys(_WHILE_THERE, TopicState.READY),
            "TopicDeleted": TopicState.ABSENT,
            "TopicVanished": TopicState.ABSENT,
        },
    },
    meaning={
        TopicState.ABSENT: "no topic of this name",
        TopicState.INCOMPLETE: "created; a leader is missing, or a live broker does not know it yet",
        TopicState.READY: "was complete once; it stays ready though brokers come and go",
    },
)

PARTITION = Lifecycle(
    name="partition",
    about="One partition of a topic. Epochs rise with each event but its first; placeholders may remain in any state. "
    "`TopicDiscovered` is not in the table: it says how every partition stands.",
    start=PartitionState.ABSENT,
    table={
        PartitionState.ABSENT: {"TopicCreated": PartitionState.LED, "PartitionsAdded": PartitionState.LED},
        PartitionState.LED: {
            "LeaderElected": PartitionState.LED,
            LEADER_LOST: PartitionState.LEADERLESS,
            "IsrChanged": PartitionState.LED,
            "PartitionChanged": PartitionState.LED,
            PARTITION_LED: PartitionState.LED,
            PARTITION_UNLED: PartitionState.LEADERLESS,
            "PlaceholderFilled": PartitionState.LED,
            **dict.fromkeys(_ENDS, PartitionState.ABSENT),
        },
        PartitionState.LEADERLESS: {
            "LeaderElected": PartitionState.LED,
            "PartitionChanged": PartitionState.LEADERLESS,
            PARTITION_LED: PartitionState.LED,
            PARTITION_UNLED: PartitionState.LEADERLESS,
            "PlaceholderFilled": PartitionState.LEADERLESS,
            **dict.fromkeys(_ENDS, PartitionState.ABSENT),
        },
    },
    meaning={
        PartitionState.ABSENT: "no such partition",
        PartitionState.LED: "a member of the in-sync set leads, or led when brokers were last looked at",
        PartitionState.LEADERLESS: "no member of the in-sync set is live; it keeps that set until one returns",
    },
)

BROKER = Lifecycle(
    name="broker",
    about="One broker id. A live broker that registers as a new incarnation is fenced first.",
    start=BrokerState.UNREGISTERED,
    table={
        BrokerState.UNREGISTERED: {"BrokerRegistered": BrokerState.FENCED},
        BrokerState.FENCED: {
            "BrokerRegistered": BrokerState.FENCED,
            "BrokerUnfenced": BrokerState.LIVE,
            "LogDirsChanged": BrokerState.FENCED,
            "BrokerUnregistered": BrokerState.UNREGISTERED,
        },
        BrokerState.LIVE: {
            "BrokerFenced": BrokerState.FENCED,
            "BrokerLeaving": BrokerState.LEAVING,
            "LogDirsChanged": BrokerState.LIVE,
            "BrokerUnregistered": BrokerState.UNREGISTERED,
        },
        BrokerState.LEAVING: {
            "BrokerFenced": BrokerState.FENCED,
            "LogDirsChanged": BrokerState.LEAVING,
            "BrokerUnregistered": BrokerState.UNREGISTERED,
        },
    },
    meaning={
        BrokerState.UNREGISTERED: "unknown, or forgotten",
        BrokerState.FENCED: "known; it neither leads nor is placed on",
        BrokerState.LIVE: "it leads, follows and is placed on",
        BrokerState.LEAVING: "it is in controlled shutdown: it serves until its leaderships have moved",
    },
)

LIFECYCLES = (CREATE_REQUEST, TOPIC, PARTITION, BROKER)
