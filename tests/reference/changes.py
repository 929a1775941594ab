"""What Topicwright makes of an answer of Kafka's where it wants to be different: see `differences`."""

from __future__ import annotations

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
    """A change of each row of the answer; what is there afterwards stays."""
    return lambda rows, case, version: tuple(row if is_after(row) else change(row, version) for row in rows)


def refused(code: str, message: str | None = None) -> Change:
    """Each topic or resource gets this error, and nothing is there afterwards that was not before."""

    def change(rows: Rows, case: Case, version: int) -> Rows:
        refused = answered(lambda row, version: Row(row.subject, code, message))(rows, case, version)
        return unmade(refused, case)

    return change


def unmade(rows: Rows, case: Case) -> Rows:
    """Of what is there afterwards, only what was there before."""
    before = {f"after {each['name']}" for each in case.before}
    return tuple(
        replace(row, code="UNKNOWN_TOPIC_OR_PARTITION", facts=())
        if is_after(row) and row.subject not in before
        else row
        for row in rows
    )


def closed(rows: Rows, case: Case, version: int) -> Rows:
    """The connection is closed, and nothing was done."""
    return (Row("connection", "CLOSED"), *(row for row in unmade(rows, case) if is_after(row)))


def becomes(*wanted: Row) -> Change:
    """These rows, with what a version does not show left out."""
    return lambda rows, case, version: tuple(in_version(row, version) for row in wanted)


def without_messages(rows: Rows, case: Case, version: int) -> Rows:
    return tuple(replace(row, message=None) for row in rows)


def own_min_insync(rows: Rows, case: Case, version: int) -> Rows:
    """min.insync.replicas like any other setting that nobody set; CreateTopics' rows show only the others."""
    noted = "min.insync.replicas='1' default-broker"

    def plain(row: Row, version: int) -> Row:
        if case.api == "CreateTopics":
            return replace(row, facts=tuple(fact for fact in row.facts if fact != noted))
        facts = (fact.replace(f" <- {noted}", "").replace("default-broker", "default") for fact in row.facts)
        return replace(row, facts=tuple(facts))

    return answered(plain)(rows, case, version)


def as_described(rows: Rows, case: Case, version: int) -> Rows:
    """A topic's own configs in the answer of its creation, as Kafka describes them afterwards."""
    after = next(row for row in rows if is_after(row))
    described = dict(re.findall(r"'([^'=]+)=([^']*)'", " ".join(after.facts)))

    def stored(fact: str) -> str:
        own = re.fullmatch(r"(\S+)='.*' topic", fact)
        return f"{own[1]}='{described[own[1]]}' topic" if own else fact

    return answered(lambda row, version: replace(row, facts=tuple(map(stored, row.facts))))(rows, case, version)


UNEXPECTED = "Unexpected broker id, expected "


def of_all_brokers(rows: Rows, case: Case, version: int) -> Rows:
    """Kafka's words where not broker 1 alone could be meant."""
    expected = f"{UNEXPECTED}1"
    return answered(
        lambda row, version: replace(row, message=row.message and row.message.replace(expected, f"{expected}, 2, 3"))
    )(rows, case, version)


def default_or_not(rows: Rows, case: Case, version: int) -> Rows:
    """Sources of configs as version 0 shows them: the default, or not."""

    def plain(fact: str) -> str:
        setting = fact.partition(" <- ")[0]
        return re.sub(r" (topic|static|default-broker)\b", "", setting)

    return tuple(replace(row, facts=tuple(map(plain, row.facts))) for row in rows)


def created(name: str = "{t}", partitions: int = 1) -> tuple[Row, Row]:
    """The rows of a topic that was created, and is there afterwards."""
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
    """The node that decides behind those that there are; the error of a request refused as a whole has none."""

    def more(fact: str) -> list[str]:
        if fact.startswith("brokers 1:"):
            return [f"{fact} {OWN_NODE}:None"]
        if fact.startswith("broker 3:"):
            return [fact, re.sub(r"\b3:\S+", f"{OWN_NODE}:None", fact)]
        return [fact]

    return tuple(replace(row, facts=tuple(each for fact in row.facts for each in more(fact))) for row in rows)
