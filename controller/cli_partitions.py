"""The query commands on the folder of a stopped worker or front: a log for each partition, read as one."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from controller.cli_folder import FolderSource, open_log
from controller.cli_sources import SourceError
from controller.machine.commands import CreateTopic
from controller.machine.decision import Answer
from events.kafka_partitions import partition_of
from events.names import ShardKey
from events.rocksdb_log import RocksDbLog
from projections.partitioned_query import PartitionedQuery
from projections.partitioned_store import PartitionedStore
from projections.query import Query
from projections.store import TopicStore

FIRST = "partition-00000"


def is_partitioned(folder: Path) -> bool:
    """Whether a folder is a worker's or a front's."""
    return (folder / FIRST / "CURRENT").is_file()


class PartitionsSource(FolderSource):
    """What a worker or a front had read when it stopped; what it did not own or follow is missing.

    Raises SourceError where a partition cannot be read, is missing, or is in use.
    """

    def __init__(self, folder: Path) -> None:
        folders = sorted(folder.glob("partition-[0-9]*"))
        missing = [number for number, one in enumerate(folders) if int(one.name.partition("-")[2]) != number]
        if missing:
            raise SourceError(f"{folder} does not hold partition {missing[0]}: name the folder of a front")
        with ExitStack() as opened:
            logs = [opened.enter_context(_Open(one)).log for one in folders]
            self._opened = opened.pop_all()
        stores = [TopicStore(log) for log in logs]
        of = partial(_of, len(logs))
        self._store = self._stores = PartitionedStore(stores, of)
        pairs = enumerate(zip(logs, stores, strict=True))
        parts = [Query(log, partial(_itself, store), number) for number, (log, store) in pairs]
        self._query = PartitionedQuery(parts, self._store, of)

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _decide(self, command: CreateTopic) -> Answer:
        return self._decide_on(self._stores.of(command.topic).state(), command)


class _Open:
    def __init__(self, folder: Path) -> None:
        self.log: RocksDbLog = open_log(folder)

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()


def _of(count: int, key: ShardKey) -> int:
    return partition_of(key, count)


def _itself(store: TopicStore) -> TopicStore:
    return store
