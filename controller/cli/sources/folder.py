"""The query commands on the folder of a stopped service: the same questions, answered from what it has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from controller.cli.sources.http import Create, Refusal, SourceError, Which, WhichRequests
from controller.http.errors import query_error, status_of
from controller.http.paths.writes import CreateBody, create_command
from controller.http.requests import API
from controller.machine.commands.commands import CreateTopic
from controller.machine.decide import decide
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from events.catalog import Verdict
from events.logs import kafka_partitions
from events.logs.heads import Head
from events.logs.log import LogError, LogLocked
from events.logs.proofs import Proof
from events.logs.rocksdb_errors import lock_holder
from events.names import RequestId, TopicId
from projections.queries import overviews, responses
from projections.queries.differences import difference
from projections.queries.explain import explain
from projections.queries.overviews import Window
from projections.queries.proving import ProofRequest, head_of, last_signed, prove
from projections.queries.query import Query, Questions
from projections.queries.requests import RequestFilter
from projections.store.partitioned_store import PartitionedStore
from projections.store.store import TopicStore
from projections.views import json_types, overview_types, to_json
from projections.views.overview_types import DifferenceView

if TYPE_CHECKING:
    from projections.replay.log.secondary import Look

FIRST_PARTITION = "partition-00000"
NO_LOG = "holds no log: name the folder that `topicwright serve --data` was given"
POLICIES_NOT_CONSULTED = "no policy was consulted: a stopped service has none running"


class FolderSource:
    """What a stopped service had written: the log of a `serve`, or a worker's or gateway's log for each partition, read
    as one. What a worker did not own or a gateway did not follow is missing.

    Raises SourceError where the folder holds no log or not all of them, or a process has one open.
    """

    def __init__(self, folder: Path) -> None:
        numbered = partitions_in(folder)
        with ExitStack() as opened:
            logs = [opened.enter_context(closing(open_log(one))) for one in numbered or (folder,)]
            self._opened = opened.pop_all()
        self._logs = logs
        stores = [TopicStore(log) for log in logs]
        parts = [
            Query(log, partial(_itself, store), number if numbered else None)
            for number, (log, store) in enumerate(zip(logs, stores, strict=True))
        ]
        partition_of = partial(kafka_partitions.partition_of, partitions=len(logs))
        self._store = PartitionedStore(stores, partition_of)
        self._query = Questions(parts, partition_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def archive_files(self) -> int:
        """As `Source` has it."""
        return sum(log.archive.fetched for log in self._logs if log.start_offset)

    def topics(self, after: str | None, limit: int, at: str | None) -> json_types.TopicsView:
        with _refusing():
            if at is not None:
                return responses.topics_at(self._query, at, after, limit)
            live = self._store.durable_cluster.live
            page = responses.summaries(self._query, self._query.newest(after, limit), live)
            return responses.topics(self._query, page, page[-1].name if page else None, self._query.end())

    def topic(self, name: str, at: str | None) -> json_types.TopicView:
        with _refusing():
            return responses.topic_at(self._query.of_topic(name), name, at)

    def requests(self, which: WhichRequests, limit: int, cursor: str | None = None) -> overview_types.RequestsView:
        wanted = RequestFilter(which.principal, which.outcome, which.rule, which.api, which.host)
        with _refusing():
            return overviews.requests(self._query, wanted, Window(which.since, which.until, which.at, limit, cursor))

    def request(self, request_id: str, at: str | None = None) -> json_types.RequestView:
        with _refusing():
            return responses.request(self._query, request_id, at)

    def diff(self, since: str, until: str | None, limit: int, cursor: str | None = None) -> DifferenceView:
        with _refusing():
            return difference(self._query, since, until, cursor, limit)

    def brokers(self, at: str | None) -> json_types.BrokersView:
        with _refusing():
            return responses.brokers(self._query, at)

    def dry_run(self, create: Create) -> json_types.CreatedView:
        """As `Source.dry_run`, by the rules that are in force in the folder."""
        with _refusing():
            command = create_command(
                msgspec.json.decode(msgspec.json.encode(create), type=CreateBody),
                TopicId(bytes(16)),
                request_id=RequestId("dry-run"),
                at_ms=self._query.as_of(self._query.end()).at_ms or 0,
                api=API,
                validate_only=True,
            )
        answer = _decide(self._store.of(create.name).state(), command)
        if answer.code:
            raise Refusal(status_of(answer.code), to_json.refusal(answer))
        return to_json.created(answer, self._store.durable_cluster.live, validate_only=True)

    def events(
        self, start: int, limit: int, which: Which, cursor: str | None = None, *, newest: bool = False
    ) -> json_types.EventsView:
        of = (which.topic, which.request_id, which.partition)
        with _refusing():
            return responses.events(self._query, start, limit, *of, cursor, kind=which.kind, newest=newest, at=which.at)

    def follow(self, start: int | None, which: Which) -> Iterator[json_types.EventView]:
        raise SourceError("--follow needs a running service: name it with --http HOST:PORT")

    def proof(self, wanted: ProofRequest) -> Proof:
        """As `Source` has it, by the first signed head over the events that is in the log; one that is not signed
        where there is none."""
        with _refusing():
            return prove(self._query, wanted, _kept_head)

    def explain(self, subject: str, at: str | None) -> json_types.ExplanationView:
        with _refusing():
            return explain(self._query, subject, at)

    def create(self, create: Create) -> json_types.CreatedView:
        raise SourceError(_STOPPED)

    def delete(self, name: str) -> json_types.DeletedView:
        raise SourceError(_STOPPED)

    def change(self, name: str, change: Mapping[str, object]) -> None:
        raise SourceError(_STOPPED)


_STOPPED = "a stopped service changes nothing: name a running one with --http HOST:PORT"


def holds_log(folder: Path) -> bool:
    """Whether there is a log in the folder, or a partition of one."""
    return (folder / "CURRENT").is_file() or (folder / FIRST_PARTITION / "CURRENT").is_file()


def partitions_in(folder: Path) -> list[Path]:
    """The folders of a worker's or gateway's partitions, in order; none where the folder is that of a single log."""
    if not (folder / FIRST_PARTITION / "CURRENT").is_file():
        if not (folder / "CURRENT").is_file():
            raise SourceError(f"{folder} {NO_LOG}")
        return []
    folders = sorted(folder.glob("partition-[0-9]*"))
    missing = [number for number, one in enumerate(folders) if int(one.name.partition("-")[2]) != number]
    if missing:
        raise SourceError(f"{folder} does not hold partition {missing[0]}: name the folder of a gateway")
    return folders


def _kept_head(part: Query, offset: int) -> Head:
    return last_signed(part, offset) or head_of(part, part.as_of(part.end()).at_ms or 0)


def _itself(store: TopicStore) -> TopicStore:
    return store


def _decide(state: State, command: CreateTopic) -> Answer:
    decision = decide(state, command)
    if not decision.consult:
        return decision.answers[0]
    allowed = msgspec.structs.replace(command, verdict=Verdict("allowed"))
    return msgspec.structs.replace(decide(state, allowed).answers[0], message=POLICIES_NOT_CONSULTED)


def open_log(folder: Path) -> Look:
    """The log in a folder, for reading: nothing is written there. Raises SourceError."""
    from projections.replay.log.secondary import Look, is_written

    if is_written(folder):
        locked = LogLocked(str(folder), lock_holder(folder / "LOCK"))
        raise SourceError(f"{locked}; or ask the service that runs there with --http HOST:PORT")
    try:
        return Look(folder)
    except LogError as error:
        raise SourceError(str(error)) from error


@contextmanager
def _refusing() -> Iterator[None]:
    """Turns the errors of a query into the answer that HTTP would give."""
    try:
        yield
    except LogError as error:
        raise SourceError(str(error)) from error
    except msgspec.ValidationError as error:
        invalid = ErrorCode.INVALID_REQUEST
        raise Refusal(400, json_types.ErrorView(error=invalid.name, code=int(invalid), message=str(error))) from None
    except Exception as error:
        answer = query_error(error)
        if answer is None:
            raise
        raise Refusal(*answer) from None
