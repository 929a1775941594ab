"""Text tables for `decide`: one case a row, what is given, what is requested, what comes of it.

A row has three columns between bars:
    given   settings `key=value`, some by short names (SHORT); live brokers `1 2@rack`, fenced ones `3!`; topics
            `has:NAME[:COUNTxFACTOR]` (ready), `waits:NAME[:COUNTxFACTOR]` (requested as w-NAME, not complete)
    request a verb, a name and options; see `command`
    result  the events in short (`refused` stands for `requested rejected answered`), then `=>` and each answer: its
            code, and its rule if it has one

Lines that begin with # are headings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.machine.commands import commands
from controller.machine.commands.cluster import (
    DiscoverDeletion,
    DiscoverTopic,
    FinishChange,
    ObservedPartition,
    RefuseCreation,
)
from controller.machine.commands.commands import AnyCommand
from controller.machine.decision import topic_named
from events.catalog import Assignment, Endpoint, Verdict
from events.codec import encode_event
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.tree_heads import Head, HeadSigner
from events.names import NO_LEADER, BrokerId
from tests.machine.access import tables
from tests.machine.in_short import in_short
from tests.machine.partitions.real_tables import OPS, REAL_VERBS, brokers, config_op
from tests.machine.rig import TOPIC_ID, Rig, restored, stored

Row = tuple[str, str, str]


def rows(table: str) -> Iterator[Row]:
    """The rows of a table; its columns without the blanks around them."""
    for line in table.strip().splitlines():
        if line.strip() and not line.strip().startswith("#"):
            given, request, result = (column.strip() for column in line.split("|"))
            yield given, request, result


def stories(text: str) -> list[tuple[str, list[str]]]:
    """Stories by their headings: a line of what is given, then commands, each with what comes of it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.strip().splitlines():
        if line.startswith("#"):
            found.append((line.removeprefix("# "), []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def play(rig: Rig, lines: Iterable[str], *, restarts: bool = False) -> None:
    """Check what comes of each command; with `restarts` the state is written and read again before each."""
    for line in lines:
        request, _, expected = line.partition("|")
        if restarts:
            rig.state = restored(stored(rig.state))
        assert in_short(rig.put(command(rig, request.strip()))) == " ".join(expected.split()), request


# What is given.


SHORT = {
    "policy": "create.topic.policy.class.name=my.Policy",
    "fewer": "enable.under.replicated.topic.creation=true",
    "keep": "delete.topic.enable=false",
    "count": "num.partitions",
    "factor": "default.replication.factor",
    "minisr": "min.insync.replicas",
    "cluster": "has.target.cluster=true",
}


def given(text: str) -> Rig:
    rig = Rig()
    words = [_long(word) for word in text.split()]
    rig.settings(tuple(sorted(_pair(word) for word in words if "=" in word)))
    for word in words:
        if word[0].isdigit():
            broker, _, rack = word.rstrip("!").partition("@")
            rig.register(int(broker), rack or None)
            if not word.endswith("!"):
                rig.unfence(int(broker))
    for word in words:
        kind, _, rest = word.partition(":")
        if kind in {"has", "waits"}:
            name, _, shape = rest.partition(":")
            rig.put(_create(rig, f"{name} {shape or '1x1'} id=w-{name} verdict=allowed"))
            if kind == "has":
                rig.confirm()
    return rig


def _long(word: str) -> str:
    key, equals, value = word.partition("=")
    return SHORT.get(key, key) + equals + value


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


# What is requested.


def command(rig: Rig, text: str) -> AnyCommand:
    verb, _, rest = text.partition(" ")
    return _VERBS[verb](rig, rest)


def _options(text: str) -> tuple[list[str], dict[str, str]]:
    words = text.split()
    return [word for word in words if "=" not in word], dict(_pair(word) for word in words if "=" in word)


def _stamps(rig: Rig, options: dict[str, str], default_id: str = "q") -> dict[str, Any]:
    at_ms = rig.tick() if "at" not in options else rig.now_ms + int(options["at"])
    return {"request_id": options.get("id", default_id), "at_ms": at_ms}


def _request_fields(rig: Rig, words: list[str], options: dict[str, str], api: str, version: int) -> dict[str, Any]:
    return {
        **_stamps(rig, options),
        "topic": words[0].replace("~", " ").replace("''", ""),
        "principal": options.get("as", "User:alice"),
        "client_id": "table",
        "api": options.get("api", api),
        "api_version": int(options.get("v", version)),
        "denied": int(options.get("denied", 0)),
        "duplicate": "twice" in words,
        "validate_only": "dry" in words,
        "dry_run": _dry_run_of(options.get("clear")),
    }


def _create(rig: Rig, text: str) -> commands.CreateTopic:
    """`create NAME [COUNTxFACTOR] [on=PARTITION:1.2,…] [conf=k=v;…] [v=] [timeout=] [verdict=] [denied=] [id=] [dry]
    [twice]`: counts are -1 and the timeout 1000 ms unless given."""
    words, options = _options(text)
    count, _, factor = next((word for word in words[1:] if "x" in word), "-1x-1").partition("x")
    return commands.CreateTopic(
        **_request_fields(rig, words, options, "CreateTopics", 7),
        topic_id=TOPIC_ID,
        num_partitions=int(count),
        replication_factor=int(factor),
        assignments=tuple(
            Assignment(int(one.partition(":")[0]), brokers(one.partition(":")[2]))
            for one in options.get("on", "").split(",")
            if one
        ),
        configs=tuple(
            (SHORT.get(name, name), None if value == "null" else value)
            for name, _, value in (one.partition("=") for one in options.get("conf", "").split(";") if one)
        ),
        timeout_ms=int(options.get("timeout", 1000)),
        verdict=_verdict(options.get("verdict")),
    )


def _dry_run_of(text: str | None) -> commands.DryRunResult | None:
    """`clear=CODE`: what the cluster that carries decisions out said, 0 for nothing against it."""
    return None if text is None else commands.DryRunResult(int(text), "not here" if int(text) else "")


def _verdict(text: str | None) -> Verdict | None:
    match text:
        case None:
            return None
        case "allowed":
            return Verdict("allowed")
        case "refused":
            return Verdict("refused", "my.Policy", "policy:names", "no such names")
        case _:
            return Verdict("failed", "my.Policy", "policy:my.Policy", "policy my.Policy raised KeyError: 'x'")


def _partitions(rig: Rig, text: str) -> commands.CreatePartitions:
    """`partitions NAME to=COUNT [on=1.2,2.3 | on=none]`: `on=none` is an empty list of assignments."""
    words, options = _options(text)
    on = options.get("on")
    lists = None if on is None else tuple(brokers(one.replace("-", "")) for one in on.split(",") if on != "none")
    return commands.CreatePartitions(
        **_request_fields(rig, words, options, "CreatePartitions", 3), count=int(options["to"]), assignments=lists
    )


def _delete(rig: Rig, text: str) -> commands.DeleteTopic:
    """`delete NAME [topic-id=same|other]`"""
    words, options = _options(text)
    wanted = {None: None, "same": TOPIC_ID, "other": b"f" * 16}[options.get("topic-id")]
    fields = _request_fields(rig, words, options, "DeleteTopics", 6)
    return commands.DeleteTopic(**fields, topic_id=wanted)  # type: ignore[arg-type]


def _alter(rig: Rig, text: str) -> commands.AlterTopicConfigs:
    """`alter NAME set:k=v delete:k append:k=v …`, or `replace NAME set:k=v …`"""
    words = text.split()
    ops = tuple(config_op(word) for word in words if word.partition(":")[0] in OPS)
    rest, options = _options(" ".join(word for word in words if word.partition(":")[0] not in OPS))
    return commands.AlterTopicConfigs(**_request_fields(rig, rest, options, "IncrementalAlterConfigs", 1), ops=ops)


def _replace(rig: Rig, text: str) -> commands.AlterTopicConfigs:
    altered = _alter(rig, text + " api=AlterConfigs v=2")
    fields = {name: getattr(altered, name) for name in altered.__struct_fields__}
    return commands.AlterTopicConfigs(**{**fields, "incremental": False})


def _register(rig: Rig, text: str) -> commands.RegisterBroker:
    words, options = _options(text)
    return commands.RegisterBroker(
        **_stamps(rig, options),
        broker_id=BrokerId(int(words[0])),
        incarnation=options.get("as", "first"),
        rack=options.get("rack"),
        endpoints=(Endpoint("PLAINTEXT", "localhost", 9092),),
    )


def _of_broker(
    kind: type[commands.UnregisterBroker | commands.FenceBroker | commands.UnfenceBroker],
) -> Callable[[Rig, str], AnyCommand]:
    def make(rig: Rig, text: str) -> AnyCommand:
        return kind(**_stamps(rig, {}), broker_id=BrokerId(int(text)), reason="why")

    return make


def _review(rig: Rig, text: str) -> commands.ReconcileTopics:
    return commands.ReconcileTopics(**_stamps(rig, {}), topics=tuple(text.split()))  # type: ignore[arg-type]


def _isr(rig: Rig, text: str) -> commands.AlterPartition:
    """`isr NAME by=BROKER PARTITION:1.2:LEADER_EPOCH:PARTITION_EPOCH …`"""
    words, options = _options(text)
    reports = []
    for word in words[1:]:
        partition, isr, leader_epoch, partition_epoch = word.split(":")
        reports.append(commands.IsrReport(int(partition), brokers(isr), int(leader_epoch), int(partition_epoch)))
    broker_id = BrokerId(int(options["by"]))
    stamps = _stamps(rig, options)
    return commands.AlterPartition(**stamps, topic=words[0], broker_id=broker_id, reports=tuple(reports))  # type: ignore[arg-type]


def _sync(rig: Rig, text: str) -> commands.AlterPartition:
    """`sync NAME [alone]`: the leader of partition 0 reports for all that it leads, with the epochs as they are, every
    live replica in sync, or itself alone."""
    words, options = _options(text)
    topic = topic_named(rig.state, words[0])
    partitions = topic.partitions if topic is not None else ()
    leader = partitions[0].leader if partitions else NO_LEADER
    live = (leader,) if "alone" in words else rig.state.cluster.live
    reports = tuple(
        commands.IsrReport(index, tuple(r for r in one.replicas if r in live), one.leader_epoch, one.partition_epoch)
        for index, one in enumerate(partitions)
        if one.leader == leader
    )
    return commands.AlterPartition(**_stamps(rig, options), topic=words[0], broker_id=leader, reports=reports)  # type: ignore[arg-type]


def _confirm(rig: Rig, text: str) -> commands.ConfirmMetadata:
    """`confirm BROKER… [upto=OFFSET]`: everything, unless an offset is given."""
    words, options = _options(text)
    offset: Any = int(options.get("upto", len(rig.log) - 1))
    return commands.ConfirmMetadata(
        **_stamps(rig, options), brokers=tuple(BrokerId(int(w)) for w in words), offset=offset
    )


def _expire(rig: Rig, text: str) -> commands.ExpireRequest:
    """`expire NAME id=REQUEST [at=MS from now]`"""
    words, options = _options(text)
    return commands.ExpireRequest(**_stamps(rig, options), topic=words[0])  # type: ignore[arg-type]


def _settings(rig: Rig, text: str) -> commands.ChangeSettings:
    """`settings [RELEASE] key=value …`, short names allowed."""
    words, options = _options(" ".join(_long(word) for word in text.split()))
    return commands.ChangeSettings(
        **_stamps(rig, {}), settings=tuple(sorted(options.items())), release=words[0] if words else "1.0"
    )


def _seen(rig: Rig, text: str) -> DiscoverTopic:
    """`seen NAME REPLICAS:ISR:LEADER:LEADER_EPOCH … [conf=k=v;…] [topic-id=own|other] [known=stale]`: the cluster has a
    topic so; ISR is all replicas where it is left empty."""
    words, options = _options(text)
    topic = topic_named(rig.state, words[0])
    partitions = []
    for word in words[1:]:
        replicas, isr, leader, epoch = word.split(":")
        partitions.append(
            ObservedPartition(brokers(replicas), brokers(isr or replicas), BrokerId(int(leader)), int(epoch))
        )
    configs = tuple(tuple(one.split("=")) for one in options["conf"].split(";") if one) if "conf" in options else None
    known = None if topic is None else (len(topic.partitions), topic.configs)
    return DiscoverTopic(
        **_stamps(rig, options),
        topic=words[0],  # type: ignore[arg-type]
        topic_id={"own": OWN_ID, "other": b"o" * 16}[options.get("topic-id", "own")],  # type: ignore[arg-type]
        partitions=tuple(partitions),
        configs=configs,  # type: ignore[arg-type]
        known=known if options.get("known") != "stale" else (99, ()),
        reason="seen",
    )


OWN_ID = b"kafka's own id.."
"""The id that the cluster gives a topic."""


def _gone(rig: Rig, text: str) -> DiscoverDeletion:
    """`gone NAME [topic-id=own|other]`"""
    words, options = _options(text)
    topic_id: Any = {"own": OWN_ID, "other": b"o" * 16}[options.get("topic-id", "own")]
    return DiscoverDeletion(**_stamps(rig, options), topic=words[0], topic_id=topic_id, reason="seen")  # type: ignore[arg-type]


def _refuse(rig: Rig, text: str) -> RefuseCreation:
    """`refuse NAME code=CODE [topic-id=other]`"""
    words, options = _options(text)
    topic_id: Any = b"o" * 16 if "topic-id" in options else TOPIC_ID
    said = {"error_code": int(options["code"]), "message": "not here"}
    return RefuseCreation(**_stamps(rig, options), topic=words[0], topic_id=topic_id, **said)  # type: ignore[arg-type]


def _done(rig: Rig, text: str) -> FinishChange:
    """`done NAME id=REQUEST [code=CODE]`"""
    words, options = _options(text)
    code = int(options.get("code", 0))
    said = {"error_code": code, "message": "not here" if code else ""}
    return FinishChange(**_stamps(rig, options), topic=words[0], **said)  # type: ignore[arg-type]


def _sign(rig: Rig, text: str) -> commands.RecordHead:
    """`sign`: the head of the whole log, by a key that anybody can know."""
    stamps, tree = _stamps(rig, {}), Frontier()
    tree.extend([encode_event(one.at_ms, one.cause, one.event) for one in rig.log], PATH_LENGTH_MAX)
    head = Head(log="signed", size=tree.size, root=tree.root().hex(), at_ms=stamps["at_ms"])
    made = HeadSigner(Ed25519PrivateKey.from_private_bytes(bytes(32))).signed(head)
    said: dict[str, Any] = {"signed_at_ms": made.at_ms, "public_key": made.public_key, "signature": made.signature}
    return commands.RecordHead(**stamps, size=made.size, root=tree.root(), **said)


def _of_access(make: Callable[[dict[str, Any], list[str]], AnyCommand]) -> Callable[[Rig, str], AnyCommand]:
    def parse(rig: Rig, text: str) -> AnyCommand:
        return make(_stamps(rig, {}), text.split())

    return parse


_VERBS: dict[str, Callable[[Rig, str], AnyCommand]] = {
    "create": _create,
    "partitions": _partitions,
    "delete": _delete,
    "alter": _alter,
    "replace": _replace,
    "register": _register,
    "unregister": _of_broker(commands.UnregisterBroker),
    "fence": _of_broker(commands.FenceBroker),
    "unfence": _of_broker(commands.UnfenceBroker),
    "reconcile": _review,
    "isr": _isr,
    "sync": _sync,
    "confirm": _confirm,
    "expire": _expire,
    "settings": _settings,
    "seen": _seen,
    "gone": _gone,
    "refuse": _refuse,
    "done": _done,
    "sign": _sign,
    "acls": _of_access(tables.create_acls),
    "unacls": _of_access(tables.delete_acls),
    "quotas": _of_access(tables.quotas),
    "credential": _of_access(tables.credential),
    "refusals": _of_access(tables.refusals),
    "secret": _of_access(tables.secret),
    **REAL_VERBS,
}
