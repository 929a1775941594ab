"""All intended differences between the responses of Topicwright and of Kafka 4.4, with their reasons.

A difference names the cases that it affects, and turns Kafka's response into the one that Topicwright must give. So a
difference is tested as strictly as an agreement. A difference that affects no case is an error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from tests.reference.cases import Case, Row
from tests.reference.changes import (
    FACTOR,
    GROWN,
    MISSING,
    PARTITIONS,
    Change,
    Rows,
    and_own_node,
    answered,
    as_described,
    becomes,
    closed,
    created,
    default_or_not,
    of_all_brokers,
    own_min_insync,
    refused,
    without_messages,
    without_racks,
)

Fleet = Literal["simulated", "cluster", "workers' cluster"]
"""The brokers under Topicwright: simulated, or a Kafka cluster with one process or with workers."""
BOTH_CLUSTERS: tuple[Fleet, ...] = ("cluster", "workers' cluster")
FLEETS: tuple[Fleet, ...] = ("simulated", *BOTH_CLUSTERS)

OLDEST_OF_KAFKA = {"CreateTopics": 2, "DeleteTopics": 1, "DescribeConfigs": 1}
"""The oldest versions in Kafka 4. Topicwright also supports the ones before, for clients of Kafka 0.10 to 1.x."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One intended difference: its cases (a pattern on `API: name`), their versions, and the change."""

    reason: str
    cases: str
    change: Change
    versions: range = range(100)
    fleets: tuple[Fleet, ...] = FLEETS
    """The broker sets with this difference."""

    def touches(self, case: Case, version: int, fleet: Fleet) -> bool:
        mine = fleet in self.fleets and version in self.versions
        return mine and re.fullmatch(self.cases, case.id) is not None


def expected(kafka: Rows, case: Case, version: int, fleet: Fleet) -> Rows:
    """Returns the response that Topicwright must give, from Kafka's."""
    for each in DIFFERENCES:
        if each.touches(case, version, fleet):
            kafka = each.change(kafka, case, version)
    return kafka


def agrees(got: Rows, wanted: Rows) -> bool:
    """True if the responses agree. An error message may continue after Kafka's text, or exist where Kafka has none."""

    def says(got: Row, wanted: Row) -> bool:
        if wanted.code == "NONE" or got.message is None:
            return got.message == wanted.message
        return got.message.startswith(wanted.message or "")

    def same(got: Row, wanted: Row) -> bool:
        return (got.subject, got.code, got.facts) == (wanted.subject, wanted.code, wanted.facts) and says(got, wanted)

    return len(got) == len(wanted) and all(map(same, got, wanted))


def versions_of(case: Case) -> tuple[int, ...]:
    """The case's versions, and older ones that Topicwright supports, except v0 for a dry run."""
    oldest = OLDEST_OF_KAFKA.get(case.api)
    dry = case.body.get("validate_only") is True
    older = range(int(dry), oldest) if oldest == case.versions[0] else ()
    return (*older, *case.versions)


def versions_that_differ(case: Case, fleet: Fleet, kafka: Mapping[tuple[str, int], Rows]) -> tuple[int, ...]:
    """A case's newest version, and each version whose expected response differs from that of the next.

    All servers encode and decode with the same code, so one server is enough to test every version.
    """
    versions = versions_of(case)
    right = {
        version: expected(kafka[case.id, max(version, case.versions[0])], case, version, fleet) for version in versions
    }
    return (*(version for version, after in pairwise(versions) if right[version] != right[after]), versions[-1])


# --- the list; later entries get the result of earlier ones

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "brokers that share the controller's address have no rack in Metadata, or kafkajs disconnects at each look",
        "Metadata: .*",
        without_racks,
        range(1, 100),
        fleets=("simulated",),
    ),
    Difference(
        "a value is stored, and so answered, in the text that all of Kafka's parsers read alike",
        r"CreateTopics: config [\w.]+=.*",
        lambda rows, case, version: as_described(rows, case, version) if rows[0].code == "NONE" else rows,
    ),
    # in front of a Kafka cluster: clients that name topics get its brokers' addresses, and the controller's
    Difference(
        "the node that decides is one more than the cluster's brokers, without a rack",
        "Metadata: (?!none by an empty list|cluster operations|all by).*",
        and_own_node,
        fleets=BOTH_CLUSTERS,
    ),
    # versions that Kafka 4 dropped: Topicwright answers as in Kafka's oldest version, without the fields that they lack
    Difference(
        "KIP-4: a v0 request with a topic twice, or with an assignment beside counts, is logged and disconnected",
        "CreateTopics: (same .*|policy after existence|assigned with (partitions|factor|both|wrong|counts).*)",
        closed,
        range(1),
    ),
    # counts
    Difference(
        "KIP-4's version has no defaults that -1 could stand for",
        "CreateTopics: partitions -1",
        refused("INVALID_PARTITIONS", PARTITIONS),
        range(1),
    ),
    Difference(
        "KIP-4's version has no defaults that -1 could stand for (factor)",
        "CreateTopics: (factor -1|defaults for both.*|policy is told of defaults)",
        refused("INVALID_REPLICATION_FACTOR", FACTOR),
        range(1),
    ),
    # names
    Difference(
        "names that collide are refused even when one request brings both",
        "CreateTopics: collision in one request",
        lambda rows, case, version: (
            rows[0],
            Row("{t}_a", "INVALID_TOPIC_EXCEPTION", "Topic '{t}_a' collides with existing topic: {t}.a"),
            rows[2],
            Row("after {t}_a", MISSING),
        ),
    ),
    # settings
    Difference(
        "NaN is no ratio from 0 to 1",
        "CreateTopics: config min.cleanable.dirty.ratio=NaN",
        refused("INVALID_CONFIG", "Invalid value NaN for configuration min.cleanable.dirty.ratio"),
    ),
    Difference(
        "Kafka 4 keeps min.insync.replicas of the cluster as a dynamic setting, for eligible leader replicas (KIP-966)",
        "CreateTopics: .*|DescribeConfigs: (?!broker|all).*",
        own_min_insync,
    ),
    Difference(
        "without eligible leader replicas nobody sets min.insync.replicas of all brokers",
        "DescribeConfigs: broker.*",
        own_min_insync,
        fleets=("simulated",),
    ),
    # timeouts of 0 and less: KIP-4: the server starts the work and does not wait; Kafka does nothing
    Difference(
        "KIP-4: without a timeout a valid topic is created, and the answer is that it was not waited for",
        "CreateTopics: timeout (0|-1)",
        becomes(Row("{t}", "REQUEST_TIMED_OUT"), created()[1]),
    ),
    Difference(
        "KIP-4: without a timeout an invalid topic gets its own error",
        "CreateTopics: timeout 0 with errors",
        becomes(
            Row("{t}*", "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '{t}*' contains one or more characters"),
            Row("{t}a", "REQUEST_TIMED_OUT"),
            Row("{t}b", "INVALID_PARTITIONS", PARTITIONS),
            created("{t}a")[1],
            Row("after {t}b", MISSING),
        ),
    ),
    Difference(
        "KIP-4: without a timeout a topic that exists is reported as such",
        "CreateTopics: timeout 0, exists",
        lambda rows, case, version: (Row("{t}", "TOPIC_ALREADY_EXISTS", "Topic '{t}' already exists."), rows[1]),
    ),
    Difference(
        "a dry run has nothing to wait for",
        "CreateTopics: timeout 0, dry run",
        becomes(created()[0], Row("after {t}", MISSING)),
    ),
    Difference(
        "a deletion is done when it is decided: without a timeout too",
        "DeleteTopics: timeout 0",
        becomes(Row("{t}", "NONE"), Row("after {t}", MISSING)),
        fleets=("simulated", "workers' cluster"),
    ),
    Difference(
        "without a timeout a deletion is begun at the cluster, and the answer is that it was not waited for",
        "DeleteTopics: timeout 0",
        becomes(Row("{t}", "REQUEST_TIMED_OUT"), Row("after {t}", MISSING)),
        fleets=("cluster",),
    ),
    Difference(
        "an unknown topic is reported as such without a timeout too",
        "DeleteTopics: timeout -1, unknown",
        refused(MISSING),
    ),
    Difference(
        "partitions are added when that is decided: without a timeout too",
        "CreatePartitions: timeout 0",
        becomes(Row("{t}", "NONE"), GROWN),
        fleets=("simulated", "workers' cluster"),
    ),
    Difference(
        "without a timeout partitions are begun at the cluster, and the answer is that they were not waited for",
        "CreatePartitions: timeout 0",
        becomes(Row("{t}", "REQUEST_TIMED_OUT"), GROWN),
        fleets=("cluster",),
    ),
    Difference(
        "why topics cannot grow is said without a timeout too",
        "CreatePartitions: timeout 0 with errors",
        lambda rows, case, version: (
            Row("{t}", "INVALID_PARTITIONS", "The topic {t} currently has 2 partition(s); 1 would not be an increase."),
            Row("{t}b", MISSING),
            rows[2],
        ),
    ),
    # resources that Topicwright does not have
    Difference(
        "who decides answers for all its brokers, by their ids",
        "DescribeConfigs: broker that is another",
        lambda rows, case, version: (
            Row("broker 2", "NONE", "", (f"node.id='2' static read_only{' type=3 undocumented' * (version > 2)}",)),
        ),
    ),
    Difference(
        "who decides knows all its brokers",
        "(Describe|Alter|IncrementalAlter)Configs: broker unknown|DescribeConfigs: broker logger unknown",
        of_all_brokers,
        fleets=("simulated",),
    ),
    Difference(
        "configs of all brokers are there where somebody set them: without eligible leader replicas nobody has to",
        "DescribeConfigs: all brokers",
        answered(lambda row, version: replace(row, facts=())),
        fleets=("simulated",),
    ),
    Difference(
        "there are no types unknown to Kafka to describe",
        "DescribeConfigs: type .*",
        refused("INVALID_REQUEST"),
        fleets=("simulated",),
    ),
    # Kafka's bugs
    Difference(
        "a resource twice in AlterConfigs is refused as in IncrementalAlterConfigs, where Kafka falls silent",
        "AlterConfigs: same topic twice",
        lambda rows, case, version: (
            *[Row("topic {t}", "INVALID_REQUEST", "Each resource must appear at most once.")] * 2,
            rows[1],
        ),
    ),
    Difference(
        "an unknown operation is the client's mistake",
        "IncrementalAlterConfigs: operation strange",
        answered(lambda row, version: Row(row.subject, "INVALID_REQUEST")),
    ),
    Difference(
        "a topic requested by neither name nor id is the client's mistake",
        "Metadata: by neither",
        lambda rows, case, version: tuple(
            row if row.code == "NONE" else replace(row, code="INVALID_REQUEST") for row in rows
        ),
    ),
    Difference("version 0 of DescribeConfigs has no sources", "DescribeConfigs: .*", default_or_not, range(1)),
    Difference("version 0 of CreateTopics has no messages", "CreateTopics: .*", without_messages, range(1)),
)
