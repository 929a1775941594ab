"""Verbs of the text tables for KRaft brokers and their clients. Directories are small numbers; 0 means none."""

from collections.abc import Callable
from typing import Any

from controller.machine.commands import commands
from controller.machine.commands.commands import LATEST_CREATE_TOPICS, AnyCommand, Approval, DryRunResult
from events.catalog import BrokerDetails, ConfigOp, Endpoint, QuorumEpochBegun, SupportedFeature
from events.names import BrokerId, RequestId
from tests.machine.rig import TOPIC_ID, Rig

Fields = Callable[[Rig, list[str], dict[str, str]], dict[str, Any]]
"""Returns the fields of a command for the words and options of a line."""
OPS = ("set", "delete", "append", "subtract")


def request_fields(
    words: list[str], options: dict[str, str], api: str, version: int = LATEST_CREATE_TOPICS
) -> dict[str, Any]:
    """Returns the fields of a request for the topic `words[0]`. `clear=CODE` is the target cluster's dry-run result, 0
    for success. `approves=ID` is the held request that `User:bob` (or `by=`) approves."""
    dry_run = None
    if "clear" in options:
        code = int(options["clear"])
        dry_run = DryRunResult(code, "not here" if code else "")
    return {
        "topic": words[0].replace("~", " ").replace("''", ""),
        "principal": options.get("as", "User:alice"),
        "client_id": "table",
        "api": options.get("api", api),
        "api_version": int(options.get("v", version)),
        "denied": int(options.get("denied", 0)),
        "duplicate": "twice" in words,
        "validate_only": "dry" in words,
        "dry_run": dry_run,
        "approval": Approval(RequestId(options["approves"]), options.get("by", "User:bob"))
        if "approves" in options
        else None,
    }


def directory(number: str | int) -> bytes:
    return int(number).to_bytes(16, "big")


def brokers(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(one)) for one in text.split(".") if one not in ("", "-"))


def config_ops(words: list[str]) -> tuple[ConfigOp, ...]:
    """Returns the config operations: `set:k=v`, `delete:k`, `append:k=v`, `subtract:k=v`."""
    ops = []
    for word in words:
        kind, _, rest = word.partition(":")
        if kind in OPS:
            name, has_value, value = rest.partition("=")
            ops.append(ConfigOp(name, OPS.index(kind), value if has_value and value != "null" else None))
    return tuple(ops)


def _quorum(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`quorum [elr]`: the controller starts, and sets features if there are none."""
    level = ("eligible.leader.replicas.version", 1)
    features = (*((level,) if "elr" in words else ()), ("metadata.version", 30))
    return {"leader": QuorumEpochBegun(0, 3000, 0, "localhost", 9093, directory(9)), "features": features}


def _features(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`features NAME=LEVEL …`"""
    return {"features": tuple(sorted((name, int(level)) for name, level in options.items())), "reason": "requested"}


def _join(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`join BROKER [dirs=1.2] [as=INCARNATION] [rack=] [unclean]`: a KRaft broker registers. By default its only
    directory is ten times its id."""
    broker = int(words[0])
    dirs = tuple(directory(one) for one in options.get("dirs", str(broker * 10)).split("."))
    features = (SupportedFeature("metadata.version", 7, 30),)
    return {
        "broker_id": BrokerId(broker),
        "incarnation": options.get("as", "first"),
        "rack": options.get("rack"),
        "endpoints": (Endpoint("PLAINTEXT", "localhost", 9092),),
        "details": BrokerDetails((0,), features, dirs, "unclean" not in words),
    }


def _dirs(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`dirs BROKER 1.2 [cordoned=2]`: the online directories, and those of them that are cordoned."""
    online, cordoned = (
        tuple(directory(one) for one in each.split(".") if each) for each in (words[1], options.get("cordoned", ""))
    )
    return {"broker_id": BrokerId(int(words[0])), "log_dirs": online, "cordoned": cordoned}


def _epoch(rig: Rig, broker: str, options: dict[str, str]) -> dict[str, Any]:
    known = rig.state.cluster.brokers.get(BrokerId(int(broker)))
    epoch = int(options.get("epoch", known.broker_epoch if known is not None else 0))
    return {"broker_id": BrokerId(int(broker)), "broker_epoch": epoch}


def _report(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`report NAME by=BROKER [epoch=] [other] PARTITION:1.2:LEADER_EPOCH:PARTITION_EPOCH[:recovering][:e3.4] …`

    `other` sends another topic id; `e3.4` are the broker epochs of the ISR.
    """
    reports = []
    for word in words[1:]:
        if word == "other":
            continue
        partition, isr, leader_epoch, partition_epoch, *rest = word.split(":")
        epochs = next((brokers(one[1:]) for one in rest if one[0] == "e"), ())
        fields = int(partition), brokers(isr), int(leader_epoch), int(partition_epoch)
        reports.append(commands.IsrReport(*fields, "recovering" in rest, epochs))
    topic_id = b"f" * 16 if "other" in words else TOPIC_ID
    by = _epoch(rig, options["by"], options)
    return {**by, "topic": words[0], "topic_id": topic_id, "reports": tuple(reports)}


def _lies(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`lies NAME by=BROKER [epoch=] PARTITION:DIRECTORY …`"""
    directories = tuple((int(one.split(":")[0]), directory(one.split(":")[1])) for one in words[1:])
    by = _epoch(rig, options["by"], options)
    return {**by, "topic": words[0], "topic_id": TOPIC_ID, "directories": directories}


def _elect(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`elect NAME 0.1 [unclean]`"""
    partitions = tuple(int(one) for one in words[1].split("."))
    return {**request_fields(words, options, "ElectLeaders"), "partitions": partitions, "unclean": "unclean" in words}


def _reassign(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`reassign NAME [same-factor] PARTITION:1.2|cancel …`"""
    pairs = [one.split(":") for one in words[1:] if ":" in one]
    wanted = tuple(commands.Reassignment(int(at), None if to == "cancel" else brokers(to)) for at, to in pairs)
    fields = request_fields(words, options, "AlterPartitionReassignments")
    return {**fields, "reassignments": wanted, "allow_factor_change": "same-factor" not in words}


def _configure(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`configure KIND:NAME set:k=v delete:k … [dry] [replace] [denied=]`"""
    kind, _, name = words[0].partition(":")
    fields = request_fields(words, options, "IncrementalAlterConfigs")
    is_incremental = "replace" not in words
    return {**fields, "kind": int(kind), "name": name, "ops": config_ops(words), "incremental": is_incremental}


REAL_VERBS: dict[str, tuple[type[AnyCommand], Fields]] = {
    "quorum": (commands.BeginQuorumEpoch, _quorum),
    "features": (commands.ChangeFeatures, _features),
    "join": (commands.RegisterBroker, _join),
    "leave": (commands.BeginShutdown, lambda rig, words, options: {"broker_id": BrokerId(int(words[0]))}),
    "dirs": (commands.ChangeLogDirs, _dirs),
    "report": (commands.AlterPartition, _report),
    "lies": (commands.AssignDirectories, _lies),
    "producers": (commands.AllocateProducerIds, lambda rig, words, options: _epoch(rig, words[0], options)),
    "elect": (commands.ElectLeaders, _elect),
    "balance": (commands.BalanceLeaders, lambda rig, words, options: {"topics": tuple(words)}),
    "reassign": (commands.ReassignPartitions, _reassign),
    "configure": (commands.AlterResourceConfigs, _configure),
}
