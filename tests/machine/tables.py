"""Text tables for `decide`: a case per row, with the initial state, a request and its result.

A row has three columns between bars:
    given   settings `key=value`, some with short names (SHORT); live brokers `1 2@rack`, fenced ones `3!`; topics
            `has:NAME[:COUNTxFACTOR]` (ready), `waits:NAME[:COUNTxFACTOR]` (pending create w-NAME)
    request a verb, a name and options; see `command`
    result  the events as short texts (`refused` stands for `requested rejected answered`), then `=>` and each answer:
            its code, and its rule if it has one

Lines that begin with # are headings.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.machine.commands import commands
from controller.machine.commands.access import ApplyRules, EndApprovals
from controller.machine.decision import topic_named
from events.catalog import Assignment, Endpoint, HeadSigned, Partition, Verdict
from events.codec import encode_event
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.tree_heads import Head, HeadSigner
from events.names import NO_LEADER, BrokerId, RequestId, TopicName
from tests.machine.access.tables import ACCESS_VERBS
from tests.machine.in_short import in_short
from tests.machine.partitions.real_tables import REAL_VERBS, Fields, brokers, config_ops, request_fields
from tests.machine.rig import TOPIC_ID, Rig, restored, stored

Row = tuple[str, str, str]


def rows(table: str) -> Iterator[Row]:
    """Returns the rows of a table, with stripped columns."""
    for line in table.strip().splitlines():
        if line.strip() and not line.strip().startswith("#"):
            given, request, result = (column.strip() for column in line.split("|"))
            yield given, request, result


def stories(text: str) -> list[tuple[str, list[str]]]:
    """Returns stories by heading: a line with the initial state, then commands, each with its decision."""
    found: list[tuple[str, list[str]]] = []
    for line in text.strip().splitlines():
        if line.startswith("#"):
            found.append((line.removeprefix("# "), []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def play(rig: Rig, lines: Iterable[str], *, restarts: bool = False) -> None:
    """Check the decision on each command. With `restarts` the state is encoded and decoded before each."""
    for line in lines:
        request, _, expected = line.partition("|")
        if restarts:
            rig.state = restored(stored(rig.state))
        assert in_short(rig.put(command(rig, request.strip()))) == " ".join(expected.split()), request


# Initial state.


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
            rig.put(command(rig, f"create {name} {shape or '1x1'} id=w-{name} verdict=allowed"))
            if kind == "has":
                rig.confirm()
    return rig


def _long(word: str) -> str:
    key, equals, value = word.partition("=")
    return SHORT.get(key, key) + equals + value


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


# Requests.


def command(rig: Rig, text: str) -> commands.AnyCommand:
    """Parses a verb with words and options `key=value`. `id=` is the request id, `at=` a time in ms from now."""
    verb, *rest = text.split()
    kind, fields = VERBS[verb]
    options = dict(_pair(word) for word in rest if _is_option(word))
    at_ms = rig.tick() if "at" not in options else rig.now_ms + int(options["at"])
    own = fields(rig, [word for word in rest if not _is_option(word)], options)
    return kind(request_id=RequestId(options.get("id", "q")), at_ms=at_ms, **own)


def _is_option(word: str) -> bool:
    """True for `key=value`, but not for config operations (`set:key=value`) and quotas (`user:bob/key=value`)."""
    key, equals, _ = word.partition("=")
    return bool(equals) and ":" not in key and "/" not in key


def _create(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`create NAME [COUNTxFACTOR] [on=PARTITION:1.2,…] [conf=k=v;…] [v=] [timeout=] [verdict=] [denied=] [dry]
    [twice]`: by default counts are -1 and the timeout is 1000 ms."""
    count, _, factor = next((word for word in words[1:] if "x" in word), "-1x-1").partition("x")
    assignments = (one.partition(":") for one in options.get("on", "").split(",") if one)
    configs = (one.partition("=") for one in options.get("conf", "").split(";") if one)
    return {
        **request_fields(words, options, "CreateTopics"),
        "topic_id": TOPIC_ID,
        "num_partitions": int(count),
        "replication_factor": int(factor),
        "assignments": tuple(Assignment(int(index), brokers(on)) for index, _, on in assignments),
        "configs": tuple((SHORT.get(name, name), None if value == "null" else value) for name, _, value in configs),
        "timeout_ms": int(options.get("timeout", 1000)),
        "verdict": VERDICTS[options.get("verdict")],
    }


VERDICTS = {
    None: None,
    "allowed": Verdict("allowed"),
    "refused": Verdict("refused", "my.Policy", "policy:names", "no such names"),
    "failed": Verdict("failed", "my.Policy", "policy:my.Policy", "policy my.Policy raised KeyError: 'x'"),
}


def _partitions(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`partitions NAME to=COUNT [on=1.2,2.3 | on=none]`: `on=none` is an empty list of assignments."""
    on = options.get("on")
    lists = None if on is None else tuple(brokers(one) for one in on.split(",") if on != "none")
    fields = request_fields(words, options, "CreatePartitions", 3)
    return {**fields, "count": int(options["to"]), "assignments": lists}


def _delete(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`delete NAME [topic-id=same|other]`"""
    wanted = {None: None, "same": TOPIC_ID, "other": b"f" * 16}[options.get("topic-id")]
    return {**request_fields(words, options, "DeleteTopics", 6), "topic_id": wanted}


def _alter(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`alter NAME set:k=v delete:k append:k=v …`"""
    return {**request_fields(words, options, "IncrementalAlterConfigs", 1), "ops": config_ops(words)}


def _replace(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`replace NAME set:k=v …`"""
    return {**request_fields(words, options, "AlterConfigs", 2), "ops": config_ops(words), "incremental": False}


def _register(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`register BROKER [as=INCARNATION] [rack=]`"""
    return {
        "broker_id": BrokerId(int(words[0])),
        "incarnation": options.get("as", "first"),
        "rack": options.get("rack"),
        "endpoints": (Endpoint("PLAINTEXT", "localhost", 9092),),
    }


def _of_broker(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    return {"broker_id": BrokerId(int(words[0])), "reason": "why"}


def _isr(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`isr NAME by=BROKER PARTITION:1.2:LEADER_EPOCH:PARTITION_EPOCH …`"""
    reports = []
    for word in words[1:]:
        partition, isr, leader_epoch, partition_epoch = word.split(":")
        reports.append(commands.IsrReport(int(partition), brokers(isr), int(leader_epoch), int(partition_epoch)))
    return {"topic": words[0], "broker_id": BrokerId(int(options["by"])), "reports": tuple(reports)}


def _sync(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`sync NAME [alone]`: the leader of partition 0 reports an ISR for each partition that it leads: all live
    replicas, or itself alone. Epochs are current."""
    topic = topic_named(rig.state, words[0])
    partitions = topic.partitions if topic is not None else ()
    leader = partitions[0].leader if partitions else NO_LEADER
    live = (leader,) if "alone" in words else rig.state.cluster.live
    reports = tuple(
        commands.IsrReport(index, tuple(r for r in one.replicas if r in live), one.leader_epoch, one.partition_epoch)
        for index, one in enumerate(partitions)
        if one.leader == leader
    )
    return {"topic": words[0], "broker_id": leader, "reports": reports}


def _confirm(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`confirm BROKER… [upto=OFFSET]`: the default offset is the last one."""
    offset = int(options.get("upto", len(rig.log) - 1))
    return {"brokers": tuple(BrokerId(int(word)) for word in words), "offset": offset}


def _settings(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`settings [RELEASE] key=value …`, also with short names."""
    longer = [_long(word) for word in (*words, *(f"{key}={value}" for key, value in options.items()))]
    release = next((word for word in longer if "=" not in word), "1.0")
    return {"settings": tuple(sorted(_pair(word) for word in longer if "=" in word)), "release": release}


def _seen(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`seen NAME REPLICAS:ISR:LEADER:LEADER_EPOCH … [conf=k=v;…] [topic-id=own|other] [known=stale]`: the state of a
    topic in the target cluster. An empty ISR means all replicas."""
    topic = topic_named(rig.state, words[0])
    partitions = []
    for word in words[1:]:
        replicas, isr, leader, epoch = word.split(":")
        observed = brokers(replicas), brokers(isr or replicas), BrokerId(int(leader)), int(epoch)
        partitions.append(Partition(*observed))
    configs = tuple(_pair(one) for one in options["conf"].split(";") if one) if "conf" in options else None
    known = None if topic is None else (len(topic.partitions), topic.configs)
    return {
        "topic": words[0],
        "topic_id": CLUSTER_IDS[options.get("topic-id", "own")],
        "partitions": tuple(partitions),
        "configs": configs,
        "known": known if options.get("known") != "stale" else (99, ()),
        "reason": "seen",
    }


CLUSTER_IDS = {"own": b"kafka's own id..", "other": b"o" * 16}
"""The topic id of the target cluster, and another id."""


def _discover_deletion(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`gone NAME [topic-id=own|other]`"""
    return {"topic": words[0], "topic_id": CLUSTER_IDS[options.get("topic-id", "own")], "reason": "seen"}


def _refuse(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`refuse NAME code=CODE [topic-id=other]`"""
    topic_id = CLUSTER_IDS["other"] if "topic-id" in options else TOPIC_ID
    return {"topic": words[0], "topic_id": topic_id, "error_code": int(options["code"]), "message": "not here"}


def _done(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`done NAME id=REQUEST [code=CODE]`"""
    code = int(options.get("code", 0))
    return {"topic": words[0], "error_code": code, "message": "not here" if code else ""}


def _sign(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`sign`: the tree head of the whole log, signed with a fixed key."""
    tree = Frontier()
    tree.extend([encode_event(one.at_ms, one.cause, one.event) for one in rig.log], PATH_LENGTH_MAX)
    head = Head(log="signed", size=tree.size, root=tree.root().hex(), at_ms=rig.now_ms)
    made = HeadSigner(Ed25519PrivateKey.from_private_bytes(bytes(32))).signed(head)
    return {"head": HeadSigned(made.size, tree.root(), made.at_ms, made.public_key, made.signature)}


RULES = {
    "none": "",
    "small": """
[[rule]]
name = "small"
partitions = { max = 2 }

[[rule]]
name = "short"
mode = "warn"
configs = { "retention.ms" = { max = 9 } }

[[rule]]
name = "keep"
on = "delete"
refuse = "topics stay"

[[default]]
name = "two"
partitions = 2
replication_factor = 1
""",
    "approval": """
[[rule]]
name = "big"
on = ["create", "grow"]
partitions = { max = 2 }
approve_by = ["User:bob", "approver"]

[[rule]]
name = "kept"
on = ["alter", "delete"]
refuse = "ask bob"
approve_by = ["User:bob"]
approval_expires = "24h"
""",
}


def _rules(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`rules small|approval|none`"""
    return {"text": RULES[words[0]]}


VERBS: dict[str, tuple[type[commands.AnyCommand], Fields]] = {
    "create": (commands.CreateTopic, _create),
    "partitions": (commands.CreatePartitions, _partitions),
    "delete": (commands.DeleteTopic, _delete),
    "alter": (commands.AlterTopicConfigs, _alter),
    "replace": (commands.AlterTopicConfigs, _replace),
    "register": (commands.RegisterBroker, _register),
    "unregister": (commands.UnregisterBroker, _of_broker),
    "fence": (commands.FenceBroker, _of_broker),
    "unfence": (commands.UnfenceBroker, _of_broker),
    "reconcile": (commands.ReconcileTopics, lambda rig, words, options: {"topics": tuple(words)}),
    "isr": (commands.AlterPartition, _isr),
    "sync": (commands.AlterPartition, _sync),
    "confirm": (commands.ConfirmMetadata, _confirm),
    "expire": (commands.ExpireRequest, lambda rig, words, options: {"topic": words[0]}),
    "settings": (commands.ChangeSettings, _settings),
    "seen": (commands.DiscoverTopic, _seen),
    "gone": (commands.DiscoverDeletion, _discover_deletion),
    "refuse": (commands.RefuseCreation, _refuse),
    "done": (commands.FinishChange, _done),
    "sign": (commands.RecordHead, _sign),
    "rules": (ApplyRules, _rules),
    "deny": (
        EndApprovals,
        lambda rig, words, options: {
            "held": ((RequestId(words[0]), TopicName("a")),),
            "reason": "no",
            "principal": "User:bob",
        },
    ),
    "expire-approvals": (EndApprovals, lambda rig, words, options: {"principal": ""}),
    **ACCESS_VERBS,
    **REAL_VERBS,
}
