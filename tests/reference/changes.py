"""Functions that turn a response of Kafka into Topicwright's intended response: see `differences`."""

import re
from collections.abc import Callable
from dataclasses import replace

from tests.reference.answers import OWN_NODE
from tests.reference.cases import Case, Row, in_version

Rows = tuple[Row, ...]
Change = Callable[[Rows, Case, int], Rows]


def is_after(row: Row) -> bool:
    return row.subject.startswith("after ")


def answered(change: Callable[[Row, int], Row]) -> Change:
    """Changes each row of the response, and keeps the rows that describe topics afterwards."""
    return lambda rows, case, version: tuple(row if is_after(row) else change(row, version) for row in rows)


def refused(code: str, message: str | None = None) -> Change:
    """Each topic or resource gets this error, and no new topic exists afterwards."""

    def change(rows: Rows, case: Case, version: int) -> Rows:
        refused = answered(lambda row, version: Row(row.subject, code, message))(rows, case, version)
        return unmade(refused, case)

    return change


def unmade(rows: Rows, case: Case) -> Rows:
    """Topics that did not exist before are missing afterwards."""
    before = {f"after {each['name']}" for each in case.before}
    return tuple(
        replace(row, code="UNKNOWN_TOPIC_OR_PARTITION", facts=())
        if is_after(row) and row.subject not in before
        else row
        for row in rows
    )


def closed(rows: Rows, case: Case, version: int) -> Rows:
    """The server closes the connection and changes nothing."""
    return (Row("connection", "CLOSED"), *(row for row in unmade(rows, case) if is_after(row)))


def becomes(*wanted: Row) -> Change:
    """Replaces all rows by these, without the facts that a version lacks."""
    return lambda rows, case, version: tuple(in_version(row, version) for row in wanted)


def without_messages(rows: Rows, case: Case, version: int) -> Rows:
    return tuple(replace(row, message=None) for row in rows)


def own_min_insync(rows: Rows, case: Case, version: int) -> Rows:
    """min.insync.replicas is an ordinary default; rows of CreateTopics have only configs of other sources."""
    noted = "min.insync.replicas='1' default-broker"

    def plain(row: Row, version: int) -> Row:
        if case.api == "CreateTopics":
            return replace(row, facts=tuple(fact for fact in row.facts if fact != noted))
        facts = (fact.replace(f" <- {noted}", "").replace("default-broker", "default") for fact in row.facts)
        return replace(row, facts=tuple(facts))

    return answered(plain)(rows, case, version)


def as_described(rows: Rows, case: Case, version: int) -> Rows:
    """The response to a create has the topic's configs in the form in which Kafka later describes them."""
    after = next(row for row in rows if is_after(row))
    described = dict(re.findall(r"'([^'=]+)=([^']*)'", " ".join(after.facts)))

    def stored(fact: str) -> str:
        own = re.fullmatch(r"(\S+)='.*' topic", fact)
        return f"{own[1]}='{described[own[1]]}' topic" if own else fact

    return answered(lambda row, version: replace(row, facts=tuple(map(stored, row.facts))))(rows, case, version)


UNEXPECTED = "Unexpected broker id, expected "


def of_all_brokers(rows: Rows, case: Case, version: int) -> Rows:
    """Kafka's message, with all broker ids instead of broker 1 alone."""
    expected = f"{UNEXPECTED}1"
    return answered(
        lambda row, version: replace(row, message=row.message and row.message.replace(expected, f"{expected}, 2, 3"))
    )(rows, case, version)


def default_or_not(rows: Rows, case: Case, version: int) -> Rows:
    """Sources of configs in version 0: the default, or not."""

    def plain(fact: str) -> str:
        setting = fact.partition(" <- ")[0]
        return re.sub(r" (topic|static|default-broker)\b", "", setting)

    return tuple(replace(row, facts=tuple(map(plain, row.facts))) for row in rows)


def created(name: str = "{t}", partitions: int = 1) -> tuple[Row, Row]:
    """The rows of a topic that is created and exists afterwards."""
    facts = (f"v5+ partitions={partitions}", "v5+ factor=1", "v5+ configs=37", "v7+ id=some")
    there = (f"partitions={partitions}", f"replicas={[1] * partitions}", "all led", "configs=[]")
    return Row(name, "NONE", None, facts), Row(f"after {name}", "NONE", None, there)


FACTOR = "Replication factor must be larger than 0, or -1 to use the default value."
PARTITIONS = "Number of partitions was set to an invalid non-positive value."
MISSING = "UNKNOWN_TOPIC_OR_PARTITION"
GROWN = Row("after {t}", "NONE", None, ("partitions=3", "replicas=[2, 2, 2]", "all led", "configs=[]"))


def without_racks(rows: Rows, case: Case, version: int) -> Rows:
    def plain(fact: str) -> str:
        return re.sub(r"(\d):[\w-]+", r"\1:None", fact) if fact.startswith("brokers ") else fact

    return tuple(replace(row, facts=tuple(map(plain, row.facts))) for row in rows)


def and_own_node(rows: Rows, case: Case, version: int) -> Rows:
    """Adds the deciding node to the brokers. The error of a request rejected as a whole has none."""

    def more(fact: str) -> list[str]:
        if fact.startswith("brokers 1:"):
            return [f"{fact} {OWN_NODE}:None"]
        if fact.startswith("broker 3:"):
            return [fact, re.sub(r"\b3:\S+", f"{OWN_NODE}:None", fact)]
        return [fact]

    return tuple(replace(row, facts=tuple(each for fact in row.facts for each in more(fact))) for row in rows)
