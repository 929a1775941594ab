"""The query commands on the folder of a stopped service: the same questions, answered from its log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, Self

import msgspec

from controller.cli_sources import Ask, Refusal, SourceError, Which
from controller.http import answers, shaping
from controller.http.asking import CreateBody, create_command
from controller.http.errors import status_of
from controller.http.shapes import (
    CreatedShape,
    ErrorShape,
    EventShape,
    EventsShape,
    ExplanationShape,
    TopicShape,
    TopicsShape,
)
from controller.machine.commands import CreateTopic
from controller.machine.decide import decide
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from events.catalog import EVENT_VERSION, Verdict
from events.log import LogError, LogLocked
from events.names import RequestId, TopicId
from events.rocksdb_log import RocksDbLog
from projections.listing import BadPlace
from projections.moments import BadMoment
from projections.query import NoTopic, NotThere, Query
from projections.questions import Questions
from projections.reading import TopicReader
from projections.store import TopicStore

POLICIES_NOT_ASKED = "no policy was asked: a stopped service has none running"


class FolderSource:
    """The log of a stopped service. Raises SourceError where the folder holds none, or a process has it open."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "CURRENT").is_file():
            raise SourceError(f"{folder} holds no log: name the folder that `topicwright serve --data` was given")
        self._log = open_log(folder)
        store = TopicStore(self._log)
        self._store: TopicReader = store
        self._query: Questions = Query(self._log, lambda: store)
        self._state = store.state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def topics(self, after: str | None, limit: int, at: str | None) -> TopicsShape:
        with Refusing():
            if at is not None:
                return answers.topics_at(self._query, at, after, limit)
            live = self._store.durable_cluster.live
            page = answers.summaries(self._query, self._query.newest(after, limit), live)
            return answers.topics(self._query, page, page[-1].name if page else None, self._query.end())

    def topic(self, name: str, at: str | None) -> TopicShape:
        with Refusing():
            return answers.topic_at(self._query.of_topic(name), name, at)

    def dry_run(self, ask: Ask) -> CreatedShape:
        """As `Source.dry_run`, by the rules that are in force in the folder."""
        with Refusing():
            command = create_command(
                msgspec.convert(ask, CreateBody),
                request_id=RequestId("dry-run"),
                at_ms=self._query.as_of(self._query.end()).at_ms or 0,
                topic_id=TopicId(bytes(16)),
                validate_only=True,
            )
        answer = self._decide(command)
        if answer.code:
            raise Refusal(status_of(answer.code), shaping.refusal(answer))
        return shaping.created(answer, self._store.durable_cluster.live, validate_only=True)

    def _decide(self, command: CreateTopic) -> Answer:
        return self._decide_on(self._state(), command)

    def _decide_on(self, state: State, command: CreateTopic) -> Answer:
        decision = decide(state, command)
        if not decision.consult:
            return decision.answers[0]
        allowed = msgspec.structs.replace(command, verdict=Verdict("allowed"))
        return msgspec.structs.replace(decide(state, allowed).answers[0], message=POLICIES_NOT_ASKED)

    def events(self, start: int, limit: int, which: Which, cursor: str | None = None) -> EventsShape:
        with Refusing():
            return answers.events(self._query, start, limit, which.topic, which.request_id, which.partition, cursor)

    def follow(self, start: int | None, which: Which) -> Iterator[EventShape]:
        raise SourceError("--follow needs a running service: name it with --http HOST:PORT")

    def explain(self, subject: str) -> ExplanationShape:
        with Refusing():
            return answers.explanation(self._query, subject)


def open_log(folder: Path) -> RocksDbLog:
    """The log in a folder. Raises SourceError."""
    try:
        return RocksDbLog.open(folder, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=_no_new_cluster)
    except LogLocked as error:
        raise SourceError(f"{error}; or ask the service that runs there with --http HOST:PORT") from error
    except LogError as error:
        raise SourceError(str(error)) from error


def _no_new_cluster() -> NoReturn:
    raise SourceError("the folder holds no log: name the folder that `topicwright serve --data` was given")


class Refusing:
    """Turns the errors of a query into the answer that HTTP would give."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        match error:
            case NoTopic():
                raise _refusal(404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from None
            case NotThere():
                raise Refusal(404, ErrorShape(error="RESOURCE_NOT_FOUND", code=91, message=str(error))) from None
            case BadMoment():
                raise _refusal(400, ErrorCode.INVALID_REQUEST, f"at: {error}") from None
            case BadPlace():
                raise _refusal(400, ErrorCode.INVALID_REQUEST, str(error)) from None
            case msgspec.ValidationError():
                raise _refusal(400, ErrorCode.INVALID_REQUEST, str(error)) from None
            case LogError():
                raise SourceError(str(error)) from error


def _refusal(status: int, code: ErrorCode, message: str) -> Refusal:
    return Refusal(status, ErrorShape(error=code.name, code=int(code), message=message))
