"""The settings of `topicwright serve`, as a table. Keys are Kafka's own where Kafka has one.

The broker-level settings that give topics their defaults (`log.retention.hours`, …) are settings too; they stand in
`controller.machine.configs.table` beside the topic configs that they serve.
"""

from __future__ import annotations

from controller.machine.configs.values import AtLeast, AtLeastOr, Between, ConfigType, OneOf
from controller.settings.access_table import ACCESS_SETTINGS
from controller.settings.quorum_table import QUORUM_SETTINGS
from controller.settings.row import Setting
from controller.settings.security_table import SECURITY_SETTINGS

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
MEBIBYTE = 1 << 20


SETTINGS: tuple[Setting, ...] = (
    Setting("node.id", _INT, "0", "The id under which the controller shows itself as a node.", AtLeast(0)),
    Setting(
        "cluster.id",
        _STRING,
        None,
        "The id of the cluster. Without one, the first start makes an id and keeps it in the data folder; with one, a "
        "data folder of another cluster is refused.",
        form="1 to 100 letters, digits, - and _",
    ),
    Setting(
        "num.partitions",
        _INT,
        "1",
        "Partitions of a topic whose creator leaves the count to the cluster, and of one created automatically.",
        AtLeast(1),
        decides=True,
    ),
    Setting(
        "default.replication.factor",
        _INT,
        "1",
        "Replication factor of a topic whose creator leaves it to the cluster, and of one created automatically.",
        Between(1, 32767),
        decides=True,
    ),
    Setting(
        "auto.create.topics.enable",
        _BOOLEAN,
        "true",
        "Whether asking for the metadata of a missing topic may create it; the client must allow it too (KIP-361).",
        decides=True,
    ),
    Setting("delete.topic.enable", _BOOLEAN, "true", "Whether topics can be deleted.", decides=True),
    Setting(
        "create.topic.policy.class.name",
        _STRING,
        "",
        "Python classes that judge each topic before it is created, in this order (KIP-108). They are found on "
        "PYTHONPATH and in the working folder, and are given all settings.",
        form="a comma-separated list of module.Class",
        decides=True,
    ),
    Setting(
        "enable.under.replicated.topic.creation",
        _BOOLEAN,
        "false",
        "Whether a topic can be created while fewer brokers live than its replication factor, if as many live as "
        "min.insync.replicas asks for; the missing replicas are filled as brokers join (KIP-409).",
        decides=True,
    ),
    Setting(
        "topic.rules.file",
        _STRING,
        None,
        "The file of rules for the policy controller.policy.rules.TopicRules.",
        form="the path of a file",
    ),
    Setting(
        "topic.rules.mode",
        _STRING,
        "enforce",
        "Whether that policy refuses what breaks a rule, or only records it.",
        OneOf(("enforce", "observe")),
    ),
    *ACCESS_SETTINGS,
    *SECURITY_SETTINGS,
    *QUORUM_SETTINGS,
    Setting(
        "broker.session.timeout.ms", _INT, "9000", "How long a broker may be silent before it is fenced.", AtLeast(1)
    ),
    Setting(
        "kraft.version",
        _INT,
        "0",
        "With --brokers kraft: 0 for brokers that name the controller in controller.quorum.voters, which all can; 1 "
        "for those with controller.quorum.bootstrap.servers too, Kafka 3.9 and later. It can be raised, never lowered.",
        Between(0, 1),
    ),
    Setting(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        "true",
        "With --brokers kraft: whether leaderships go back to preferred replicas that are in sync again.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        _INT,
        "300",
        "With --brokers kraft: how often that is looked for.",
        AtLeast(1),
    ),
    Setting(
        "log.signing.key.location",
        _STRING,
        None,
        "The file with the private key that signs heads of the log, so that whoever has the public key can prove what "
        "is in it: see docs/history.md. Without one heads are not signed.",
        form="the path of a PEM file with an Ed25519 private key that is not encrypted",
    ),
    Setting(
        "log.signing.interval.ms",
        _LONG,
        "600000",
        "How often a signed head is kept as an event of the log, where there are new events: by serve, and by the "
        "worker that owns a partition. Gateways sign heads when they are requested, and keep none.",
        AtLeast(1),
    ),
    Setting(
        "cluster.broker.ports",
        _STRING,
        "any",
        "In front of a cluster: the ports at which admin clients reach each of its brokers through this process, one "
        "for each broker and listener. With `none` admin clients see this process alone, and reach no certain broker.",
        form="any, none, or FIRST-LAST such as 9101-9120",
    ),
    Setting(
        "simulated.broker.listeners",
        _BOOLEAN,
        "false",
        "Whether each simulated broker listens on a port of its own, answers what a broker knows, and sends admin "
        "requests to the controller (KIP-4).",
    ),
    Setting(
        "api.versions.max",
        _STRING,
        "",
        "The newest versions offered of some APIs: for tests, and for clients that must see an older broker.",
        form="API:VERSION, several separated by commas, such as Metadata:3,CreateTopics:1",
    ),
    Setting(
        "socket.request.max.bytes",
        _INT,
        str(4 * MEBIBYTE),
        "Largest request; a larger one closes its connection. Kafka's default is 100 MiB, for records. What clients "
        "send to a controller is smaller: creating 10,000 topics takes 1 MB, naming them in Metadata 0.5 MB.",
        AtLeast(1),
    ),
    Setting(
        "queued.max.request.bytes",
        _LONG,
        str(256 * MEBIBYTE),
        "How much the connections of one listener may hold together: half-sent requests, those worked on, and answers "
        "that clients do not take. Beyond it the connections that hold most are closed.",
        AtLeast(1),
    ),
    Setting(
        "max.connections",
        _INT,
        str((1 << 31) - 1),
        "How many clients may be connected to one listener. All listeners and HTTP together take no more than open "
        "files (ulimit -n) leave room for: 2048 of these, or half if that is less, are kept for the log.",
        AtLeast(0),
    ),
    Setting(
        "max.connections.per.ip",
        _INT,
        str((1 << 31) - 1),
        "How many connections one address may have, to all listeners and HTTP together.",
        AtLeast(0),
    ),
    Setting(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        "Other limits for some addresses.",
        form="ADDRESS:COUNT, several separated by commas, such as 10.0.0.1:100,[::1]:5",
    ),
    Setting(
        "connections.max.idle.ms",
        _LONG,
        "600000",
        "A connection without a request for this long is closed.",
        AtLeast(1),
    ),
    Setting(
        "max.in.flight.requests.per.connection",
        _INT,
        "1000",
        "How many requests of one connection are worked on together; further ones are read when these are answered.",
        AtLeast(1),
    ),
    Setting(
        "max.request.partition.size.limit",
        _INT,
        "2000",
        "Most partitions in one answer of DescribeTopicPartitions (KIP-966).",
        AtLeast(1),
    ),
    Setting(
        "stream.commands.topic",
        _STRING,
        "topicwright.commands",
        "Workers and gateways: the topic that commands are put in.",
        form="the name of a topic",
    ),
    Setting(
        "stream.events.topic",
        _STRING,
        "topicwright.events",
        "Workers and gateways: the topic that decisions are written to. It is the whole truth, and kept for ever.",
        form="the name of a topic",
    ),
    Setting(
        "stream.partitions",
        _INT,
        "4",
        "Partitions of both topics: at most so many workers share the deciding. It cannot be changed later.",
        Between(1, 1000),
    ),
    Setting(
        "stream.replication.factor",
        _INT,
        "-1",
        "Replication factor of both topics where they are made, and that they must have where they are there; -1 for "
        "three, or one for each broker if there are fewer, and whatever is there.",
        Between(-1, 32767),
    ),
    Setting(
        "stream.group.id",
        _STRING,
        "topicwright.workers",
        "The consumer group that shares the partitions out to workers.",
        form="the name of a consumer group",
    ),
    Setting(
        "stream.session.timeout.ms",
        _INT,
        "6000",
        "How long a worker may be silent before its partitions go to others. Kafka's group.min.session.timeout.ms, "
        "6000 unless set, bounds it.",
        Between(100, 1_800_000),
    ),
    Setting(
        "store.cache.bytes",
        _LONG,
        str(128 * MEBIBYTE),
        "Memory for state read from the log: half for RocksDB's blocks, half for decoded topics. A worker or a gateway "
        "divides it by the partitions of its log. Write buffers come on top: three times the blocks' part, at least "
        "8 MiB and at most 48 MiB for each log or partition.",
        AtLeast(MEBIBYTE),
    ),
    Setting(
        "log.snapshot.interval.events",
        _LONG,
        "250000",
        "Every so many events, and at most every two events a topic, a snapshot of the state is kept beside the log: "
        "questions about the past begin there, and not at the first event. 0 takes none.",
        AtLeast(0),
    ),
    Setting(
        "log.archive.url",
        _STRING,
        None,
        "Where closed segments of the log are archived, as Parquet: see docs/history.md. Credentials of a store come "
        "from the environment. Without one nothing is archived, and nothing dropped.",
        form="a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    ),
    Setting(
        "log.archive.interval.events",
        _INT,
        "65536",
        "Every so many events a segment of the log is closed, and archived: a power of two, other numbers count as the "
        "one below. Smaller segments are archived sooner, and take more room.",
        Between(256, 1 << 20),
    ),
    Setting(
        "log.events.retention.ms",
        _LONG,
        "604800000",
        "How long events stay in the data folder once they are archived and a snapshot stands after them; older ones "
        "are read from the archive. -1 keeps all.",
        AtLeastOr(0, -1),
    ),
    Setting(
        "log.events.retention.bytes",
        _LONG,
        "-1",
        "How many bytes of archived events stay in the data folder at most; -1 sets no limit.",
        AtLeastOr(0, -1),
    ),
    Setting("gateway.heartbeat.interval.ms", _INT, "500", "How often a gateway says that it lives.", AtLeast(10)),
    Setting(
        "gateway.session.timeout.ms",
        _INT,
        "5000",
        "A gateway without a heartbeat for this long is no longer shown to clients. A gateway that does not receive "
        "its own heartbeats for this long treats Kafka as lost.",
        AtLeast(100),
    ),
    Setting(
        "gateway.answer.timeout.ms",
        _INT,
        "30000",
        "How long a gateway waits for a decision where the request has no timeout of its own.",
        AtLeast(1),
    ),
    Setting(
        "stream.gateways.topic",
        _STRING,
        "topicwright.gateways",
        "The topic in which gateways say that they live.",
        form="the name of a topic",
    ),
    Setting(
        "cluster.client.properties.file",
        _STRING,
        None,
        "With --brokers cluster:BOOTSTRAP: librdkafka properties for the cluster, such as security.protocol, "
        "sasl.mechanism, sasl.username, sasl.password and ssl.ca.location.",
        form="the path of a file",
    ),
    Setting(
        "cluster.watch.interval.ms",
        _INT,
        "1000",
        "With --brokers cluster:BOOTSTRAP: how often the cluster's brokers and topics are looked at.",
        AtLeast(10),
    ),
    Setting(
        "cluster.configs.watch.interval.ms",
        _INT,
        "10000",
        "With --brokers cluster:BOOTSTRAP: how often the configs of all its topics are looked at.",
        AtLeast(10),
    ),
    Setting(
        "log.level",
        _STRING,
        "info",
        "The least level that is logged; info has one line for each decision.",
        OneOf(("debug", "info", "warning", "error")),
    ),
)

BY_KEY: dict[str, Setting] = {setting.key: setting for setting in SETTINGS}

POLICY_PREFIXES = ("policy.", "topic.rules.")
"""Keys that begin so are given to policies as they are, whatever they say."""
