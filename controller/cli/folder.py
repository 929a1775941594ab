"""Answers commands that read (`topics`, `events`, …) from the data folder of a stopped service (`--data`), with the
handlers of the JSON API in this process.

Nothing is written to the folder, and nothing is decided, so there are no dry runs.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from controller.cli.backend import Backend
from controller.controller_api import ControllerApi, ControllerPort, ControllerStatus
from controller.http.app import build_routes
from controller.http.following import Followers
from controller.http.metrics import Metrics
from controller.http.permissions import Reader
from controller.http.query_threads import ARCHIVE, QueryThreads
from controller.store.partitioned_store import PartitionedStore, PartitionOf
from controller.store.store import TopicStore
from events.catalog import Endpoint
from events.errors import UserError
from events.logs.log import LogLocked
from events.logs.rocksdb_recovery import lock_holder
from events.logs.tree_heads import Head
from projections.queries.proving import head_of, signed_head_covering
from projections.queries.query import Queries, Query

if TYPE_CHECKING:
    from projections.replay.log.secondary import FrozenLog

FIRST_PARTITION = "partition-00000"
NO_LOG = "contains no log: name the folder that `topicwright serve --data` was given"


class FolderBackend(Backend):
    """A client of the JSON API over the log of a `serve`, or the partition logs of a worker or gateway as one log.

    Raises UserError if the folder has no log, lacks a partition, or a process has a log open.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        numbered = partitions_in(folder)
        with ExitStack() as opened:
            logs = [opened.enter_context(closing(open_log(one))) for one in numbered or (folder,)]
            stores = [TopicStore(log) for log in logs]
            parts = [
                Query(log, partial(stores.__getitem__, number), number if numbered else None)
                for number, log in enumerate(logs)
            ]
            partition_of: PartitionOf = lambda _: 0  # noqa: E731
            if len(logs) > 1:
                from controller.stream.log import codec  # imports aiokafka

                partition_of = partial(codec.partition_of, partitions=len(logs))
            query, threads = Queries(parts, partition_of), QueryThreads()
            opened.callback(threads.close)
            stopped = SimpleNamespace(  # reads use nothing else of the port
                store=PartitionedStore(stores, partition_of),
                cluster_id=logs[0].cluster_id,
                status=lambda: ControllerStatus(0, 0, 0, None, None),
                now_ms=lambda: query.as_of(query.end()).at_ms or 0,
            )
            api = ControllerApi(cast(ControllerPort, stopped), node_id=0, advertised=Endpoint("", "", 0))
            reader = Reader(api, query, threads)
            handlers = reader, None, Metrics(), Followers(reader)
            self._app = build_routes(*handlers, newest_head=_recorded_head, with_pages=False)
            self._loop = opened.enter_context(closing(asyncio.new_event_loop()))
            self._opened = opened.pop_all()

    def __str__(self) -> str:
        return f"in {self._folder}"

    def close(self) -> None:
        self._opened.close()

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        return self._loop.run_until_complete(self._call(method, path, body))

    async def _call(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        target, _, query = path.partition("?")
        scope: Any = {
            "type": "http",
            "method": method,
            "path": unquote(target),
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": [(b"host", b"localhost")],
            "client": None,
            "server": None,
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        files = dict(sent[0]["headers"]).get(ARCHIVE.encode(), b"0").decode()
        return sent[0]["status"], files, b"".join(each["body"] for each in sent[1:])


def holds_log(folder: Path) -> bool:
    """True if the folder has a log, or the first partition of one."""
    return (folder / "CURRENT").is_file() or (folder / FIRST_PARTITION / "CURRENT").is_file()


def partitions_in(folder: Path) -> list[Path]:
    """The partition folders of a worker or gateway, in order; empty for a single log. Raises UserError."""
    if not holds_log(folder):
        raise UserError(f"{folder} {NO_LOG}")
    if (folder / "CURRENT").is_file() and not (folder / FIRST_PARTITION / "CURRENT").is_file():
        return []
    folders = sorted(folder.glob("partition-[0-9]*"))
    missing = [number for number, one in enumerate(folders) if int(one.name.partition("-")[2]) != number]
    if missing:
        raise UserError(
            f"{folder} lacks partition {missing[0]}: a worker has only partitions that it owned; name the folder of a "
            "gateway"
        )
    return folders


def open_log(folder: Path) -> FrozenLog:
    """Open the log in a folder for reading. Raises UserError."""
    from projections.replay.log.secondary import FrozenLog

    holder = lock_holder(folder / "LOCK")
    if holder is not None:
        raise UserError(f"{LogLocked(str(folder), holder)}; or query the running service with --http HOST:PORT")
    return FrozenLog(folder)


def _recorded_head(part: Query, offset: int, _now_ms: int) -> Head:
    """The last signed tree head in the log that covers the offset; else an unsigned one over the whole log."""
    return signed_head_covering(part, offset) or head_of(part, part.as_of(part.end()).at_ms or 0)
