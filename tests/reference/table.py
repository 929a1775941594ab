"""The differential table, and the code that sends it to a server.

All cases share one server. First, all topics that cases need are created. Then every request is sent, in the table's
order, one at a time. Then the watched topics are described. Between these steps a barrier waits until each broker has
applied all changes, because Kafka answers earlier.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.reference import table_configs, table_create_topics, table_metadata, table_other
from tests.reference.answers import code_name, rows_of
from tests.reference.cases import NO_ID, Body, Case, Row, fill, slug, topic, unfill
from tests.support.real_brokers import until
from tests.support.wire import ConnectionClosed, Wire

CASES: tuple[Case, ...] = (*table_create_topics.CASES, *table_other.CASES, *table_configs.CASES, *table_metadata.CASES)

T = TypeVar("T")

KAFKAS_OWN = ("__consumer_offsets",)
"""Topics that Kafka creates itself, for the first consumer group."""

KAFKA_IS_SILENT = "AlterConfigs: same topic twice"
"""The case without a response of Kafka."""
_SILENCE_S = 10
"""How long to wait for a missing response."""
_ANSWER_S = 240
"""How long to wait for every other response: a dry run of 12,000 partitions on a cluster takes more than 10 s on a busy
machine."""

Answers = Mapping[tuple[str, int], tuple[Row, ...]]
"""The rows of every case (by its id) in every version."""


@dataclass(frozen=True, slots=True)
class Request:
    """One case in one version, with its own topic name. `mark` ends all names, for servers that share a cluster."""

    case: Case
    version: int
    mark: str

    @property
    def own(self) -> str:
        return slug(self.case, self.version) + self.mark


def send_all(
    brokers: Mapping[int, str],
    cases: Iterable[Case] = CASES,
    *,
    prepared: Callable[[], None] = lambda: None,
    silent: str = "",
    mark: str = "",
) -> Answers:
    """Send the table to a server; `brokers` has the addresses by node id.

    `prepared` is called after the topics of the cases are created, before the first request. `silent` is the id of
    a case without a response. `mark` ends the names of topics.
    """
    requests = [Request(case, version, mark) for case in cases for version in case.versions]
    ids = _create_before(brokers, requests)
    _barrier(brokers)
    prepared()
    answers = {(each.case.id, each.version): rows for each, rows in _send_each(brokers, requests, ids, silent)}
    _barrier(brokers)
    watched = _watch(brokers, requests)
    return {key: rows + watched[key] for key, rows in answers.items()}


def _create_before(brokers: Mapping[int, str], requests: Iterable[Request]) -> dict[str, str]:
    """Create the topics that cases need; returns the topic ids by name."""
    filled = (fill(each, request.own) for request in requests for each in request.case.before)
    wanted = list({each["name"]: each for each in filled}.values())
    ids = {}
    with Wire(brokers[1]) as wire:
        for some in _batches(wanted, 200):
            body = wire.call("CreateTopics", 7, topics=some, timeout_ms=60_000, validate_only=False)
            for each in body["topics"]:
                there = each["name"] in KAFKAS_OWN and code_name(each["error_code"]) == "TOPIC_ALREADY_EXISTS"
                assert there or each["error_code"] == 0, f"cannot prepare the table: {each}"
                ids[each["name"]] = each["topic_id"]
    return ids


def _send_each(
    brokers: Mapping[int, str], requests: Iterable[Request], ids: Mapping[str, str], silent: str
) -> Iterator[tuple[Request, tuple[Row, ...]]]:
    wires = {node: Wire(address, timeout_s=_ANSWER_S) for node, address in brokers.items()}
    try:
        for each in requests:
            body = fill(each.case.body, each.own, ids.get(each.own, NO_ID))
            node = each.case.node
            wires[node].give_up_after(_SILENCE_S if each.case.id == silent else _ANSWER_S)
            try:
                answer = wires[node].call(each.case.api, each.version, **body)
                yield each, _plain(_own_rows(each, answer), each.own)
            except (ConnectionClosed, TimeoutError) as error:
                yield each, (Row("connection", "CLOSED" if isinstance(error, ConnectionClosed) else "SILENT"),)
                wires[node].close()
                wires[node] = Wire(brokers[node], timeout_s=_ANSWER_S)
    finally:
        for wire in wires.values():
            wire.close()


def _own_rows(request: Request, answer: Body) -> Iterator[Row]:
    """The rows of a response; of a listing of all topics, only those of the case's own topics."""
    lists_all = request.case.api == "Metadata" and (
        request.case.body["topics"] is None or (request.case.body["topics"] == [] and request.version == 0)
    )
    for row in rows_of(request.case.api, answer, request.version):
        if not lists_all or row.subject == "cluster" or request.own in row.subject:
            yield row


def _plain(rows: Iterable[Row], own: str) -> tuple[Row, ...]:
    return tuple(
        replace(
            row,
            subject=unfill(row.subject, own),
            message=None if row.message is None else unfill(row.message, own),
            facts=tuple(unfill(fact, own) for fact in row.facts),
        )
        for row in rows
    )


def _barrier(brokers: Mapping[int, str]) -> None:
    """Wait until every broker knows a topic that is created last."""
    names = {node: f"barrier-{uuid.uuid4().hex}-{node}" for node in brokers}
    for node, address in brokers.items():
        with Wire(address) as wire:
            wire.call("CreateTopics", 7, topics=[topic(names[node])], timeout_ms=60_000, validate_only=False)
    for address in brokers.values():
        for name in names.values():
            _await_topic(address, name)


def _await_topic(address: str, name: str) -> None:
    with Wire(address) as wire:

        def is_known() -> bool:
            body = wire.call("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
            return bool(body["topics"][0]["error_code"] == 0)

        until(is_known, 240, f"{address} knows {name}")


def _watch(brokers: Mapping[int, str], requests: Iterable[Request]) -> dict[tuple[str, int], tuple[Row, ...]]:
    """The state of watched topics, from Metadata and DescribeConfigs."""
    requests = list(requests)
    names = {fill(each, request.own) for request in requests for each in request.case.watch}
    topics: dict[str, Body] = {}
    configs: dict[str, Body] = {}
    with Wire(brokers[1]) as wire:
        for some in _batches(sorted(names), 200):
            wanted: list[Body] = [{"name": each} for each in some]
            body = wire.call("Metadata", 12, topics=wanted, allow_auto_topic_creation=False)
            topics |= {each["name"]: each for each in body["topics"]}
            resources = [{"resource_type": 2, "resource_name": each, "configuration_keys": None} for each in some]
            body = wire.call("DescribeConfigs", 4, resources=resources, include_synonyms=False)
            configs |= {each["resource_name"]: each for each in body["results"]}
    return {
        (each.case.id, each.version): _plain(
            [
                _after(topics[name], configs[name], each.case.replicas)
                for name in (fill(watched, each.own) for watched in each.case.watch)
            ],
            each.own,
        )
        for each in requests
    }


def _after(topic: Body, configs: Body, replicas: bool) -> Row:
    code = code_name(topic["error_code"])
    if topic["error_code"]:
        return Row(f"after {topic['name']}", code)
    partitions = sorted(topic["partitions"], key=lambda each: int(each["partition_index"]))
    shown = [each["replica_nodes"] if replicas else len(each["replica_nodes"]) for each in partitions]
    explicit = sorted(f"{each['name']}={each['value']}" for each in configs["configs"] if each["config_source"] == 1)
    leaders = "all led" if all(each["leader_id"] >= 0 for each in partitions) else "leaders missing"
    facts = (f"partitions={len(partitions)}", f"replicas={shown}", leaders, f"configs={explicit}")
    return Row(f"after {topic['name']}", code, None, facts)


def _batches(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
