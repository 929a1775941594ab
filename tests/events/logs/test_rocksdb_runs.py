"""Runs are found beside any number of deleted ones, readers do not wait for each other, and read what they want."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import DBRecoveryMode, WriteBatch

from events.logs.log import REQUEST, Commit
from events.logs.rocksdb_database import Database, Page
from events.logs.rocksdb_keys import pack, run_prefix
from events.logs.rocksdb_log import forget_batch
from tests.events.logs.rocksdb_folders import open_log

FORGOTTEN = 3000
"""Offsets of which the index has nothing more; many times what is stepped over one by one."""
END = 4000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = opened(tmp_path)
    yield found
    found.close()


def opened(folder: Path) -> Database:
    return Database(folder / "db", 1 << 20, DBRecoveryMode.absolute_consistency())


def write(database: Database, runs: dict[str, list[range]]) -> None:
    batch = WriteBatch(raw_mode=True)
    for name, each in runs.items():
        for run in each:
            batch.put(run_prefix(REQUEST, name) + pack(run.start), pack(run.stop - 1), database.views_handle)
    database.write(batch)


def some_runs(rng: random.Random, names: list[str]) -> dict[str, list[range]]:
    """Runs of one event to nine under random names, one after the other, none of them across what is forgotten."""
    found: dict[str, list[range]] = {name: [] for name in names}
    at = 0
    while at < END:
        stop = min(at + rng.choice((1, 1, 2, 9)), END if at >= FORGOTTEN else FORGOTTEN)
        found[rng.choice(names)].append(range(at, stop))
        at = stop + rng.choice((0, 0, 0, 5)) if stop != FORGOTTEN else stop
    return found


@pytest.mark.parametrize("seed", range(4))
def test_runs_next_to_thousands_of_deleted_ones(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "a\0", "ab", "b", "z"]
    runs = some_runs(rng, names)
    write(database, runs)
    gone = [(run_prefix(REQUEST, name), run) for name, each in runs.items() for run in each if run.start < FORGOTTEN]
    if seed % 2:
        database._views.flush()
    database.write(forget_batch(database, gone, ()))
    kept = {name: [run for run in each if run.start >= FORGOTTEN] for name, each in runs.items()} | {"never": []}
    for _ in range(300):
        name, at_most = rng.choice(list(kept)), rng.randrange(FORGOTTEN, END + 10)
        firsts = [run.start for run in kept[name] if run.start <= at_most]
        assert database.last_run(run_prefix(REQUEST, name), FORGOTTEN, at_most) == (firsts[-1] if firsts else None)
    for _ in range(30):
        start = rng.randrange(FORGOTTEN, END)
        end = rng.randrange(start, END + 10)
        found = [database.runs(run_prefix(REQUEST, name), FORGOTTEN, start, end, 1000) for name in kept]
        wanted = [
            [range(max(run.start, start), min(run.stop, end)) for run in each if run.stop > start and run.start < end]
            for each in kept.values()
        ]
        assert found == wanted


def test_readers_block_only_close(tmp_path: Path) -> None:
    database = opened(tmp_path)
    write(database, {"a": [range(1)]})
    closing = threading.Thread(target=database.close)
    with database._readers:
        assert database.last_run(run_prefix(REQUEST, "a"), 0, 5) == 0
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
    closing.join(10)
    assert not closing.is_alive()


def test_first_page_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []
    read = Database._page

    def counted(self: Database, *of: Any) -> Page:
        page = read(self, *of)
        pages.append(len(page[0]))
        return page

    keys = [b"k%05d" % number for number in range(5_000)]
    log = open_log(tmp_path / "log")
    log.write(Commit(own=dict.fromkeys(keys, bytes(200))))
    monkeypatch.setattr(Database, "_page", counted)
    assert next(log.scan(b"k"))[0] == keys[0]
    assert sum(pages) < 100
    pages.clear()
    assert [key for key, _ in log.scan(b"k")] == keys
    assert len(pages) < 10, "those who want all read large pages"
    log.close()
