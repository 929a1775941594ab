"""The contract of `EventLog`, run on each implementation."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.logs.log import Commit, Entry, EventLog, LogClosed, read_one, request_offsets, shard_offsets, shard_runs
from tests.events.logs.rocksdb_folders import open_log
from tests.support.memory_log import InMemoryLog


def commit(*values: bytes, shard: str = "orders", request: str = "r1", **state: bytes | None) -> Commit:
    return Commit([Entry(value, shard, request) for value in values], {key.encode(): state[key] for key in state})


class LogContract:
    """The contract of `EventLog`; a subclass has the fixture `log`."""

    def test_offsets_start_at_0_without_gaps(self, log: EventLog) -> None:
        assert log.write(commit(b"a", b"b")) == 0
        assert log.write(commit(b"c")) == 2
        assert log.write(Commit()) == log.next_offset == 3, "an empty commit writes nothing"
        assert list(log.read()) == [(0, b"a"), (1, b"b"), (2, b"c")]

    def test_state_without_an_event_is_rejected(self, log: EventLog) -> None:
        with pytest.raises(ValueError, match="only together with the events"):
            log.write(Commit((), {b"k": b"v"}))
        assert log.get(b"k") is None
        assert log.write(commit(b"a")) == 0, "a rejected commit does not stop the log"

    def test_only_flush_advances_the_durable_offset(self, log: EventLog) -> None:
        log.write(commit(b"a", b"b"))
        assert log.durable_offset == 0
        assert log.flush() == 2
        log.write(commit(b"c"))
        assert (log.durable_offset, log.next_offset) == (2, 3)
        assert (log.flush(), log.flush()) == (3, 3)

    def test_flush_runs_in_another_thread(self, log: EventLog) -> None:
        stop = threading.Event()
        seen: list[tuple[int, int]] = []

        def flush() -> None:
            while not stop.is_set():
                at_least = log.next_offset
                seen.append((at_least, log.flush()))

        flushing = threading.Thread(target=flush)
        flushing.start()
        try:
            for number in range(300):
                log.write(commit(b"%d" % number, b"x"))
        finally:
            stop.set()
            flushing.join()
        assert all(at_least <= durable for at_least, durable in seen), "a flush covers all writes before it"
        assert all(durable % 2 == 0 for _, durable in seen), "a flush ends between commits"
        assert [value for _, value in log.read()][::2] == [b"%d" % number for number in range(300)]

    def test_read_returns_any_offset_range(self, log: EventLog) -> None:
        log.write(commit(*(b"%d" % n for n in range(10))))
        assert [offset for offset, _ in log.read(3, 6)] == [3, 4, 5]
        assert [offset for offset, _ in log.read(8)] == [8, 9]
        assert [offset for offset, _ in log.read(8, 99)] == [8, 9]
        assert list(log.read(6, 3)) == []
        assert list(log.read(10)) == []
        with pytest.raises(ValueError, match="offsets begin at 0"):
            log.read(-1)

    def test_read_ends_at_the_next_offset_of_its_start(self, log: EventLog) -> None:
        log.write(commit(b"a", b"b"))
        reading = log.read()
        log.write(commit(b"c"))
        assert [value for _, value in reading] == [b"a", b"b"]

    def test_read_many_returns_events_in_the_requested_order(self, log: EventLog) -> None:
        log.write(commit(b"a", b"", b"c"))
        assert log.read_many([2, 0, 1, 2]) == [b"c", b"a", b"", b"c"]
        assert log.read_many([]) == []
        for absent in (3, -1):
            with pytest.raises(IndexError, match=f"no event at offset {absent}"):
                log.read_many([1, absent])

    def test_shard_runs_equal_shard_offsets(self, log: EventLog) -> None:
        shards = ["a", "a", "b", "", "a", "a\0", "ab", "a", "b", "b", "a\0b"]
        for first in range(0, len(shards), 3):
            log.write(Commit([Entry(b"e", shard) for shard in shards[first : first + 3]]))
        keys = ["a", "a\0", "ab", "none", "b", "", "a\0b"]
        for start in range(len(shards) + 1):
            for end in range(start, len(shards) + 2):
                runs = shard_runs(log, keys, start, end)
                found = [[offset for run in of_key or () for offset in run] for of_key in runs]
                assert found == [list(shard_offsets(log, key, start, end)) for key in keys], f"{start} to {end}"

    def test_shard_runs_are_limited_per_call(self, log: EventLog) -> None:
        for _ in range(600):
            log.write(Commit([Entry(b"e", shard) for shard in ("a", "b", "c", "a")]))
        keys, places = ["a", "b", "c"], []
        while keys:
            runs = shard_runs(log, keys, 0, log.next_offset)
            assert runs, "each call makes progress"
            assert None not in runs[1:]
            places += [
                list(shard_offsets(log, key)) if one is None else [n for run in one for n in run]
                for key, one in zip(keys, runs, strict=False)
            ]
            keys = keys[len(runs) :]
        assert places == [list(shard_offsets(log, key)) for key in ("a", "b", "c")]

    def test_many_large_events_are_read_in_order(self, log: EventLog) -> None:
        values = [b"%d " % n * 5_000 for n in range(150)]
        log.write(commit(*values))
        assert [value for _, value in log.read()] == values

    def test_shard_offsets_are_those_of_the_shard(self, log: EventLog) -> None:
        def entries(*shards: str) -> Commit:
            return Commit([Entry(b"e", shard) for shard in shards])

        log.write(entries("a", "a", "b", "", "a"))
        log.write(entries("a", "ab", "a", "a", "a"))
        assert list(shard_offsets(log, "a")) == [0, 1, 4, 5, 7, 8, 9]
        assert list(shard_offsets(log, "b")) == [2]
        assert list(shard_offsets(log, "ab")) == [6]
        assert list(shard_offsets(log, "")) == [3]
        assert list(shard_offsets(log, "none")) == []
        assert list(shard_offsets(log, "a", 1, 8)) == [1, 4, 5, 7]
        assert list(shard_offsets(log, "a", 8, 9)) == [8], "start and end are inside a run"
        assert list(shard_offsets(log, "a", 9, 2)) == []
        assert list(log.shard_keys()) == ["a", "ab", "b"]
        assert list(log.shard_keys("a")) == list(log.shard_keys("aa")) == ["ab", "b"]
        assert list(log.shard_keys("b")) == []

    def test_any_text_is_a_valid_shard_key(self, log: EventLog) -> None:
        names = ("a", "a\0", "a\0\0\0\0\0\0\0\0\0", "\0", "", "ÿ", "a\0\xff", "\ud800", "a" * 32_767)
        for name in names * 2:
            log.write(Commit([Entry(b"e", name, name)]))
        for index, name in enumerate(names):
            expected = [index, index + len(names)]
            assert list(shard_offsets(log, name)) == expected, f"shard {name[:20]!r}"
            assert list(shard_offsets(log, name, 1 + index)) == expected[1:], f"shard {name[:20]!r} from its second"
            assert list(request_offsets(log, name)) == (expected if name else []), f"request {name[:20]!r}"

        assert list(log.shard_keys()) == sorted({*names} - {""})
        for index, name in enumerate(sorted(names)):
            assert list(log.shard_keys(name)) == sorted(names)[index + 1 :], f"after {name[:20]!r}"

    def test_state_changes_are_written_with_their_events(self, log: EventLog) -> None:
        log.write(commit(b"a", one=b"1", two=b"2"))
        log.write(commit(b"b", one=None, two=b"3", four=None, empty=b""))
        assert [log.get(key) for key in (b"two", b"one", b"four", b"empty")] == [b"3", None, None, b""]
        assert list(log.scan()) == [(b"empty", b""), (b"two", b"3")]

    def test_own_state_is_written_without_events(self, log: EventLog) -> None:
        log.write(commit(b"a", k=b"1", old=b"0"))
        log.write(Commit(own={b"k": b"2", b"new": b"3", b"old": None, b"never": None}))
        assert list(log.scan()) == [(b"k", b"2"), (b"new", b"3")]
        assert (log.next_offset, log.write(commit(b"b"))) == (1, 1)

    def test_scan_is_sorted_by_bytes_and_stays_within_its_prefix(self, log: EventLog) -> None:
        keys = [b"t", b"t\x00", b"ta", b"t\xff", b"t\xff\xff", b"t\xffz", b"u", b"s", b"", b"\xff", b"\xff\xff"]
        log.write(Commit([Entry(b"e")], {key: b"v" + key for key in keys}))
        for prefix in (b"", b"t", b"t\xff", b"\xff", b"\xff\xff", b"x", b"\x00"):
            within = sorted(key for key in keys if key.startswith(prefix))
            assert [key for key, _ in log.scan(prefix)] == within, f"prefix {prefix!r}"
            for after in (*keys, b"tb"):
                expected = [(key, b"v" + key) for key in within if key > after]
                assert list(log.scan(prefix, after)) == expected, f"prefix {prefix!r} after {after!r}"

    def test_a_scan_continues_across_writes(self, log: EventLog) -> None:
        log.write(Commit([Entry(b"e")], {b"%05d" % n: bytes(1000) for n in range(0, 2000, 2)}))
        scanning = log.scan()
        got = [next(scanning)[0] for _ in range(3)]
        log.write(Commit([Entry(b"e")], {b"%05d" % n: b"late" if n % 2 else None for n in range(1001, 1101)}))
        got += [key for key, _ in scanning]
        assert got == sorted(set(got)), "each key once, in order"
        untouched = {b"%05d" % n for n in range(0, 2000, 2) if not 1001 <= n <= 1100}
        assert untouched <= set(got), "keys that exist throughout are returned"

    def test_recover_of_a_valid_log_loses_nothing(self, log: EventLog) -> None:
        log.write(commit(b"a", k=b"v"))
        assert log.recover() == 1
        assert (log.durable_offset, log.get(b"k"), list(log.read())) == (1, b"v", [(0, b"a")])
        assert log.write(commit(b"b")) == 1

    def test_a_closed_log_raises_log_closed(self, log: EventLog) -> None:
        log.write(commit(*[bytes(9_000)] * 100, k=b"v", q=b"v"))
        held = (log.read(), log.scan(b"q"), shard_offsets(log, "orders"))
        log.close()
        log.close()
        uses: list[Callable[[], object]] = [
            lambda: log.write(commit(b"b")),
            lambda: log.write(Commit(own={b"k": b"v"})),
            log.flush,
            log.recover,
            log.read,
            lambda: read_one(log, 0),
            lambda: log.get(b"k"),
            log.scan,
            lambda: shard_offsets(log, "orders"),
            lambda: request_offsets(log, "r1"),
            *(partial(list, each) for each in held),
        ]
        for using in uses:
            with pytest.raises(LogClosed):
                using()


class TestInMemoryLog(LogContract):
    @pytest.fixture
    def log(self) -> InMemoryLog:
        return InMemoryLog("a-cluster")

    def test_drop_unflushed_behaves_like_a_power_failure(self, log: InMemoryLog) -> None:
        log.write(commit(b"a", k=b"0", gone=b"1"))
        log.write(Commit(own={b"k": b"1"}))
        log.flush()
        log.write(commit(b"b", b"c", k=b"2", new=b"2", gone=None))
        log.write(commit(b"d", k=b"3", shard="other"))
        log.write(Commit(own={b"k": b"4"}))
        assert log.drop_unflushed() == 1
        assert (log.next_offset, list(log.read())) == (1, [(0, b"a")])
        assert list(log.scan()) == [(b"gone", b"1"), (b"k", b"1")]
        assert (list(shard_offsets(log, "orders")), list(shard_offsets(log, "other"))) == ([0], [])
        assert list(request_offsets(log, "r1")) == [0]

    def test_drop_unflushed_retains_the_oldest_commits_on_request(self, log: InMemoryLog) -> None:
        for value in (b"a", b"b", b"c"):
            log.write(commit(value, k=value))
        assert log.drop_unflushed(kept_commits=2) == 2
        assert (log.durable_offset, log.get(b"k")) == (2, b"b")


class TestRocksDbLog(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        log = open_log(tmp_path / "log")
        yield log
        log.close()


_names = st.sampled_from(["", "a", "b", "a\0b", "long" * 40])
_keys = st.sampled_from([b"", b"a", b"a\xff", b"b", b"\xff"])
_commits = st.builds(
    Commit,
    st.lists(st.builds(Entry, st.binary(max_size=40), _names, _names), min_size=1, max_size=6),
    st.dictionaries(_keys, st.none() | st.binary(max_size=20), max_size=4),
)
_steps = st.lists(_commits | st.sampled_from(["flush", "recover", "reopen"]), max_size=25)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps, start=st.integers(0, 40), end=st.none() | st.integers(0, 60))
def test_rocksdb_and_in_memory_logs_behave_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Commit | str], start: int, end: int | None
) -> None:
    path = tmp_path_factory.mktemp("same") / "log"
    memory: EventLog = InMemoryLog("made-here")
    disk: EventLog = open_log(path)
    try:
        for step in steps:
            if isinstance(step, Commit):
                assert disk.write(step) == memory.write(step), "the same first offset"
            elif step == "reopen":
                disk.close()
                memory.flush()
                disk = open_log(path)
            else:
                assert getattr(disk, step)() == getattr(memory, step)(), f"the same answer to {step}"
        assert (disk.next_offset, disk.durable_offset) == (memory.next_offset, memory.durable_offset), (
            "the same offsets"
        )
        assert list(disk.read(start, end)) == list(memory.read(start, end)), "the same events"
        assert list(disk.scan()) == list(memory.scan()), "the same state"
        for name in ("", "a", "b", "a\0b", "long" * 40, "absent"):
            by_shard = list(shard_offsets(memory, name, start, end))
            assert list(shard_offsets(disk, name, start, end)) == by_shard, f"the same shard {name!r}"
            assert list(request_offsets(disk, name)) == list(request_offsets(memory, name)), (
                f"the same request {name!r}"
            )
    finally:
        disk.close()
