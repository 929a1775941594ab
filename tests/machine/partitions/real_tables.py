"""Verbs of the tables for requests of KRaft brokers and their clients. Directories are small numbers; 0 means none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.machine.commands import commands
from controller.machine.commands.commands import AnyCommand
from events.catalog import BrokerDetails, ConfigOp, Endpoint, SupportedFeature
from events.names import BrokerId, TopicName
from tests.machine.rig import TOPIC_ID, Rig

OPS = ("set", "delete", "append", "subtract")


def directory(number: str | int) -> bytes:
    return int(number).to_bytes(16, "big")


def _split(text: str) -> tuple[list[str], dict[str, str]]:
    words = text.split()
    pairs = [word.split("=", 1) for word in words if "=" in word and ":" not in word]
    return [word for word in words if "=" not in word or ":" in word], dict(pairs)


def _stamps(rig: Rig, options: dict[str, str]) -> dict[str, Any]:
    return {"request_id": options.get("id", "q"), "at_ms": rig.tick()}


def _request_fields(rig: Rig, topic: str, options: dict[str, str], api: str) -> dict[str, Any]:
    who = {"principal": "User:alice", "client_id": "table", "denied": int(options.get("denied", 0))}
    return {**_stamps(rig, options), **who, "topic": topic, "api": api}


def brokers(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(one)) for one in text.split(".") if one not in ("", "-"))


def config_op(word: str) -> ConfigOp:
    kind, _, rest = word.partition(":")
    name, has_value, value = rest.partition("=")
    return ConfigOp(name, OPS.index(kind), value if has_value and value != "null" else None)


def _quorum(rig: Rig, text: str) -> AnyCommand:
    """`quorum [elr]`: the controller begins, with features where there are none."""
    words, options = _split(text)
    level = ("eligible.leader.replicas.version", 1)
    features = (*((level,) if "elr" in words else ()), ("metadata.version", 30))
    place: dict[str, Any] = {
        "node_id": 3000,
        "kraft_version": 0,
        "host": "localhost",
        "port": 9093,
        "directory_id": directory(9),
    }
    return commands.BeginQuorumEpoch(**_stamps(rig, options), **place, features=features)


def _features(rig: Rig, text: str) -> AnyCommand:
    """`features NAME=LEVEL …`"""
    levels = tuple(sorted((name, int(level)) for name, level in _split(text)[1].items()))
    return commands.ChangeFeatures(**_stamps(rig, {}), features=levels, reason="requested")


def _join(rig: Rig, text: str) -> AnyCommand:
    """`join BROKER [dirs=1.2] [as=INCARNATION] [rack=] [unclean]`: a real broker registers; its only directory has ten
    times its number, unless a case says otherwise."""
    words, options = _split(text)
    broker = int(words[0])
    dirs = tuple(directory(one) for one in options.get("dirs", str(broker * 10)).split("."))
    features = (SupportedFeature("metadata.version", 7, 30),)
    return commands.RegisterBroker(
        **_stamps(rig, options),
        broker_id=BrokerId(broker),
        incarnation=options.get("as", "first"),
        rack=options.get("rack"),
        endpoints=(Endpoint("PLAINTEXT", "localhost", 9092),),
        details=BrokerDetails((0,), features, dirs, "unclean" not in words),
    )


def _leave(rig: Rig, text: str) -> AnyCommand:
    return commands.BeginShutdown(**_stamps(rig, {}), broker_id=BrokerId(int(text)))


def _dirs(rig: Rig, text: str) -> AnyCommand:
    """`dirs BROKER 1.2 [cordoned=2]`: these directories are online, and of them cordoned."""
    (broker, dirs), options = _split(text)
    online, cordoned = (
        tuple(directory(one) for one in each.split(".") if each) for each in (dirs, options.get("cordoned", ""))
    )
    stamps = _stamps(rig, {})
    return commands.ChangeLogDirs(**stamps, broker_id=BrokerId(int(broker)), log_dirs=online, cordoned=cordoned)


def _epoch(rig: Rig, broker: str, options: dict[str, str]) -> dict[str, Any]:
    known = rig.state.cluster.brokers.get(BrokerId(int(broker)))
    epoch = int(options.get("epoch", known.broker_epoch if known is not None else 0))
    return {"broker_id": BrokerId(int(broker)), "broker_epoch": epoch}


def _report(rig: Rig, text: str) -> AnyCommand:
    """`report NAME by=BROKER [epoch=] [other] PARTITION:1.2:LEADER_EPOCH:PARTITION_EPOCH[:recovering][:e3.4] …`

    `other` gives another topic id, `e3.4` the epochs of the members.
    """
    words, options = _split(text)
    reports = []
    for word in words[1:]:
        if word == "other":
            continue
        partition, isr, leader_epoch, partition_epoch, *rest = word.split(":")
        epochs = next((brokers(one[1:]) for one in rest if one[0] == "e"), ())
        fields = int(partition), brokers(isr), int(leader_epoch), int(partition_epoch)
        reports.append(commands.IsrReport(*fields, "recovering" in rest, epochs))
    topic_id: Any = b"f" * 16 if "other" in words else TOPIC_ID
    by = _epoch(rig, options["by"], options)
    stamps = {**_stamps(rig, options), **by}
    return commands.AlterPartition(**stamps, topic=TopicName(words[0]), topic_id=topic_id, reports=tuple(reports))


def _lies(rig: Rig, text: str) -> AnyCommand:
    """`lies NAME by=BROKER [epoch=] PARTITION:DIRECTORY …`"""
    words, options = _split(text)
    directories = tuple((int(one.split(":")[0]), directory(one.split(":")[1])) for one in words[1:])
    by = _epoch(rig, options["by"], options)
    stamps, name = {**_stamps(rig, options), **by}, TopicName(words[0])
    return commands.AssignDirectories(**stamps, topic=name, topic_id=TOPIC_ID, directories=directories)


def _producers(rig: Rig, text: str) -> AnyCommand:
    """`producers BROKER [epoch=]`"""
    words, options = _split(text)
    return commands.AllocateProducerIds(**_stamps(rig, options), **_epoch(rig, words[0], options))


def _elect(rig: Rig, text: str) -> AnyCommand:
    """`elect NAME 0.1 [unclean]`"""
    words, options = _split(text)
    partitions = tuple(int(one) for one in words[1].split("."))
    return commands.ElectLeaders(
        **_request_fields(rig, words[0], options, "ElectLeaders"), partitions=partitions, unclean="unclean" in words
    )


def _balance(rig: Rig, text: str) -> AnyCommand:
    return commands.BalanceLeaders(**_stamps(rig, {}), topics=tuple(text.split()))  # type: ignore[arg-type]


def _reassign(rig: Rig, text: str) -> AnyCommand:
    """`reassign NAME [same-factor] PARTITION:1.2|cancel …`"""
    words, options = _split(text)
    pairs = [one.split(":") for one in words[1:] if ":" in one]
    wanted = tuple(commands.Reassignment(int(at), None if to == "cancel" else brokers(to)) for at, to in pairs)
    fields = _request_fields(rig, words[0], options, "AlterPartitionReassignments")
    return commands.ReassignPartitions(**fields, reassignments=wanted, other_factors="same-factor" not in words)


def _configure(rig: Rig, text: str) -> AnyCommand:
    """`configure KIND:NAME set:k=v delete:k … [dry] [replace] [denied=]`"""
    words, options = _split(text)
    kind, _, name = words[0].partition(":")
    return commands.AlterResourceConfigs(
        **_request_fields(rig, words[0], options, "IncrementalAlterConfigs"),
        kind=int(kind),
        name=name,
        ops=tuple(config_op(word) for word in words[1:] if word.partition(":")[0] in OPS),
        incremental="replace" not in words,
        validate_only="dry" in words,
    )


REAL_VERBS: dict[str, Callable[[Rig, str], AnyCommand]] = {
    "quorum": _quorum,
    "features": _features,
    "join": _join,
    "leave": _leave,
    "dirs": _dirs,
    "report": _report,
    "lies": _lies,
    "producers": _producers,
    "elect": _elect,
    "balance": _balance,
    "reassign": _reassign,
    "configure": _configure,
}
