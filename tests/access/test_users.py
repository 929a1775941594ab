"""Authentication: timing, cost, fake credentials, and fair use of the login threads by networks."""

import asyncio
import gc
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from argon2 import PasswordHasher

from controller.access import users as module
from controller.access.login_threads import NICENESS, FairThreadPool, network_of
from controller.access.users import THREADS, FakeCredentials, Users, matches, set_password
from controller.kafka.sasl import salted_password
from controller.machine.access.requests import ITERATIONS_MAX
from controller.machine.state import Cluster, ScramCredential
from tests.kafka.sasl_users import credential_of

HERE = "10.0.0.1"
SECRET = bytes(range(32))
SCRAM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A users file with cheap hashes, in which carol and dave have passwords; dave also has a SCRAM credential."""
    path = tmp_path_factory.mktemp("users") / "users"
    with patch.object(module, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)):
        for name in ("carol", "dave"):
            set_password(path, name, f"{name}-right")
    return path


@pytest.fixture
def users(file: Path) -> Iterator[Users]:
    scram = {(name, SCRAM): credential_of(SCRAM, f"{name}-scram", b"s" * 64, 5000) for name in ("alice", "dave")}
    one = Users(lambda: Cluster(scram=scram, login_secret=SECRET), file)
    yield one
    one.close()


class Costs:
    """Records each slow computation: argon2 with its cost, SCRAM with its iterations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[object, ...]] = []
        self.passwords: list[str] = []
        monkeypatch.setattr(module, "matches", self._matches)
        monkeypatch.setattr(module, "salted_password", self._salted)

    def _matches(self, hashed: str, password: str) -> bool:
        self.passwords.append(password)
        self.done.append(("argon2", hashed.split("$")[1:4]))
        return matches(hashed, password)

    def _salted(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        self.done.append((mechanism, iterations))
        return salted_password(mechanism, password, salt, iterations)


async def test_a_wrong_password_costs_the_same_for_every_user(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users of the file, of SCRAM, of both, and unknown users take equally long."""
    costs = Costs(monkeypatch)
    for login in (users.knows, users.has_password):
        seen = []
        for user in ("carol", "alice", "dave", "nobody"):
            costs.done.clear()
            assert not await login(user, "wrong", HERE)
            seen.append(list(costs.done))
        assert seen[0], "a hash is computed"
        assert seen == [seen[0]] * 4


async def test_the_password_of_another_user_does_not_match(users: Users) -> None:
    for user in ("nobody", "alice"):
        for password in ("carol-right", "dave-right"):
            assert not await users.knows(user, password, HERE), "an unknown user matches no password"
            assert not await users.has_password(user, password, HERE)


async def test_a_verified_password_is_not_hashed_again(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await users.has_password("dave", "dave-right", HERE)
    assert await users.knows("dave", "dave-scram", HERE)
    costs = Costs(monkeypatch)
    assert await users.has_password("dave", "dave-right", HERE)
    assert await users.knows("dave", "dave-scram", HERE)
    assert costs.done == []
    assert not await users.has_password("dave", "dave-scram", HERE), "PLAIN does not accept a SCRAM password"


async def test_without_a_users_file_no_password_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    users, costs = Users(Cluster), Costs(monkeypatch)
    assert not await users.has_password("anybody", "wrong", HERE)
    assert costs.done == []
    users.close()


async def test_scram_iterations_beyond_the_limit_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An imported metadata log may have a credential with too many iterations."""
    endless = ScramCredential(2**31 - 1, b"s" * 32, bytes(32), bytes(32))
    users = Users(lambda: Cluster(scram={("alice", SCRAM): endless}, login_secret=SECRET))
    costs = Costs(monkeypatch)
    assert not await users.knows("alice", "wrong", HERE)
    assert all(int(str(done[1])) <= ITERATIONS_MAX for done in costs.done)
    users.close()


async def test_many_wrong_logins_do_not_delay_other_networks(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """A correct login waits only for the wrong ones that are being checked, not for all two hundred."""
    costs = Costs(monkeypatch)
    storm = [asyncio.create_task(users.has_password(f"n{number}", "wrong", "10.0.0.66")) for number in range(200)]
    await asyncio.sleep(0)
    assert await users.has_password("carol", "carol-right", HERE)
    assert costs.passwords.index("carol-right") <= 2 * THREADS, "few wrong ones are checked before it"
    for task in storm:
        task.cancel()
    await asyncio.gather(*storm, return_exceptions=True)


# Fake SCRAM credentials.


def _seen(users: Users, names: range) -> list[tuple[int, bytes]]:
    credentials = [users.scram(f"n{number}", SCRAM) for number in names]
    return [(each.iterations, each.salt) for each in credentials]


def test_fake_scram_salts_are_stable_across_restarts_and_gateways(users: Users, file: Path) -> None:
    again = Users(users._cluster, file)
    assert _seen(users, range(50)) == _seen(again, range(50))
    other = Users(lambda: Cluster(scram=users._cluster().scram, login_secret=b"x" * 32))
    assert not set(_seen(users, range(50))) & set(_seen(other, range(50))), "the secret determines them"
    for one in (again, other):
        one.close()


def _cluster(forms: dict[tuple[int, int], int]) -> dict[tuple[str, str], ScramCredential]:
    """SCRAM users: `forms` has the number of users by iterations and bytes of salt."""
    each = [form for form, count in forms.items() for _ in range(count)]
    return {(f"u{n}", SCRAM): ScramCredential(form[0], b"\xff" * form[1], b"", b"") for n, form in enumerate(each)}


def test_fake_scram_credentials_resemble_stored_ones() -> None:
    forms = {(4096, 64): 60, (4096, 32): 20, (8192, 64): 20}
    fake_credential, known = FakeCredentials(), _cluster(forms)
    found = Counter(
        (one.iterations, len(one.salt))
        for one in (fake_credential.credential(SECRET, known, f"n{number}", SCRAM) for number in range(3000))
    )
    assert found.keys() == forms.keys()
    for form, count in forms.items():
        assert abs(found[form] - 30 * count) < 200, (form, found)


def test_a_new_user_changes_few_fake_scram_credentials() -> None:
    fake_credential, known = FakeCredentials(), _cluster({(4096, 64): 70, (8192, 32): 30})
    before = [fake_credential.credential(SECRET, known, f"n{number}", SCRAM).salt for number in range(1000)]
    more = {**known, ("new", SCRAM): ScramCredential(8192, b"\xff" * 32, b"", b"")}
    after = [fake_credential.credential(SECRET, more, f"n{number}", SCRAM).salt for number in range(1000)]
    assert 0 < sum(one != other for one, other in zip(before, after, strict=True)) < 50


def test_fake_scram_salts_resemble_those_of_kafkas_tools() -> None:
    """130 bits in base 36 have at most 26 digits. With 26, the first is 1."""
    fake_credential = FakeCredentials()
    kafkas = ScramCredential(4096, b"1qg6nvw4o8xv8b0n3mkpu1fmwd", b"", b"")
    for known in ({}, {("u", SCRAM): kafkas}):
        salts = [fake_credential.credential(SECRET, known, f"n{number}", SCRAM).salt for number in range(500)]
        assert all(re.fullmatch(rb"1[0-9a-z]{25}|[1-9a-z][0-9a-z]{19,24}", salt) for salt in salts)
        assert {len(salt) for salt in salts} >= {25, 26}


@pytest.fixture
def threads() -> Iterator[FairThreadPool]:
    one = FairThreadPool(1, "fair")
    yield one
    one.close()


async def test_login_threads_alternate_between_networks(threads: FairThreadPool) -> None:
    order: list[str] = []
    gate = threading.Event()
    busy = [asyncio.create_task(threads.run("storm", gate.wait))]
    busy += [asyncio.create_task(threads.run("storm", lambda: order.append("storm") or True)) for _ in range(200)]  # type: ignore[func-returns-value]
    await asyncio.sleep(0)
    others = [asyncio.create_task(threads.run(name, lambda name=name: order.append(name))) for name in ("one", "two")]  # type: ignore[misc]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*busy, *others)
    assert max(order.index("one"), order.index("two")) <= 2, "at most one request of each other network comes first"
    assert len(order) == 202


async def test_cancelled_login_work_is_not_started(threads: FairThreadPool) -> None:
    begun: list[int] = []
    gate = threading.Event()
    first = asyncio.create_task(threads.run("a", gate.wait))
    gone = [asyncio.create_task(threads.run("b", lambda n=n: begun.append(n))) for n in range(100)]  # type: ignore[misc]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    del gone, task  # they hold their stacks
    await asyncio.sleep(0)
    gc.collect()
    assert not threads._turns, "nothing is kept of networks without work"
    first.cancel()
    gate.set()
    await threads.run("c", lambda: begun.append(-1))
    assert begun == [-1], "a cancelled request frees its thread"


async def test_closed_login_threads_start_no_work(threads: FairThreadPool) -> None:
    wrong: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    begun: list[int] = []
    running, gate = threading.Event(), threading.Event()

    def wait() -> bool:
        running.set()
        return gate.wait()

    first = asyncio.create_task(threads.run("a", wait))
    waiting = [asyncio.create_task(threads.run(network, lambda: begun.append(1))) for network in "bcb"]
    await asyncio.to_thread(running.wait)
    threads.close()
    gate.set()
    assert await first
    await asyncio.wait(waiting, timeout=60)
    assert [each.cancelled() for each in waiting] == [True] * 3
    assert (begun, wrong) == ([], [])


async def test_an_exception_in_a_login_thread_is_raised_to_the_caller(threads: FairThreadPool) -> None:
    def fails() -> None:
        raise KeyError("PLANTED")

    with pytest.raises(KeyError, match="PLANTED"):
        await threads.run("a", fails)
    assert await threads.run("a", lambda: 7) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has niceness for each thread")
async def test_login_threads_have_lower_priority(threads: FairThreadPool) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert await threads.run("a", niceness) == min(niceness() + NICENESS, 19)


ADDRESSES = """
10.0.0.1                10.0.0.1
::ffff:10.0.0.1         10.0.0.1
2001:db8:1:2:3:4:5:6    2001:db8:1:2::/64
2001:db8:1:2:ff::1      2001:db8:1:2::/64
fe80::1%eth0            fe80::/64
somewhere               somewhere
some:where              some:where
"""


@pytest.mark.parametrize("line", ADDRESSES.strip().splitlines())
def test_login_networks_group_addresses(line: str) -> None:
    address, network = line.split()
    assert network_of(address) == network
