"""Golden logs: histories as written by a release, which every later release must read unchanged.

A file has one event per line, in base64, with a comment. The last line has the hash of the folded state. `python -m
tests.events.golden NAME…` rewrites files from `HISTORIES`: only for a new file, or for an intended change of the bytes
or the state.
"""

import base64
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from events.catalog import EVENT_VERSION, Recorded
from events.codec import encode_event
from tests.machine.rig import Rig, fold, stored
from tests.machine.tables import command, given

FOLDER = Path(__file__).parents[1] / "golden" / "events"

LIFE = """
create a 2x3 id=q0
confirm 1 2
create a 1x1 id=q1
create a_b 1x1 id=q2 timeout=0
create slow 1x2 id=q3
expire slow id=q3 at=5000
register 3
unfence 3
reconcile a a_b slow
sync a
partitions a to=4 id=q4
partitions a to=1 id=q5
create hand on=0:1.3,1:3.1 id=q6
confirm 1 2 3
fence 2
reconcile a a_b slow hand
delete hand id=q7
alter a set:min.insync.replicas=2 id=q8
create waits 1x1 id=q9
"""
REFUSALS = """
create '' 1x1 id=q0
create a 0x1 id=q1
create a 1x9 id=q2
create a 1x-1 id=q3 v=3
create a on=0:1.9 id=q4
create a 1x1 id=q5 denied=29
create a 1x1 id=q6 twice
create a 1x1 id=q7 conf=retention.ms=x
create a 1x1 id=q8 verdict=refused
create a 1x1 id=q9 verdict=failed
create a 1x1 id=q10 conf=retention.ms=5;cleanup.policy=compact verdict=allowed
create a 1x1 id=q11 timeout=0
partitions b to=3 id=q12
partitions a to=1 id=q13
partitions a to=2 on=9 id=q14
delete a topic-id=other id=q15
alter a set:retention.ms=x delete:cleanup.policy id=q16
replace a set:retention.ms=6 id=q17
delete a id=q18
"""

BROKERS = """
create a 2x3 id=q0
confirm 1
register 2 rack=b
unfence 2
reconcile a
sync a
register 3 rack=c
unfence 3
confirm 1 2 3
reconcile a
sync a
fence 1
reconcile a
unfence 1
sync a
register 3 rack=d as=second
unregister 3
reconcile a
settings fewer count=4 minisr=2
partitions a to=3 id=q1
"""

CLUSTER = """
create a 2x3 id=q0 clear=0
create b 1x1 id=q1 clear=44
create c 1x2 id=q2 clear=0
refuse c code=44
seen a 1.2.3::1:0 2.3.1::2:0
confirm 1 2 3
partitions a to=3 id=q3 clear=0
done a id=q3
alter a set:retention.ms=7 id=q4 clear=0
done a id=q4 code=40
seen a 1.2.3::1:0 2.3.1::2:0 3.1.2::3:0 conf=
fence 2
reconcile a
seen a 1.2.3:1.3:1:0 2.3.1:3.1:3:1 3.1.2:3.1:3:0
seen d 1.3::1:0 conf=retention.ms=5
gone a
seen d 3.1::3:5 3.1::3:0 conf=
delete d id=q5
done d id=q5
"""

ACCESS = """
acls bob/allow/create/topic/pay.… bob/deny/read/topic/pay.secret/10.0.0.7 */allow/describe/cluster/kafka-cluster
acls bob/allow/create/topic/pay.…
unacls topic/match/pay.orders/bob/any
quotas user:bob/controller_mutation_rate=2.5 client-id:<default>+user:<default>/producer_byte_rate=1024
quotas user:bob/controller_mutation_rate=-;request_percentage=7
credential set alice
credential set bob
credential remove alice
refusals 1
refusals 4711
"""

LOGINS = """
secret first
credential set alice
secret second
"""

REAL = """
quorum elr
join 1 rack=a
join 2 rack=b
unfence 1
create t 1x3 timeout=0 id=c0
join 3 rack=c dirs=30.31
unfence 2
unfence 3
reconcile t
report t by=1 0:1.2.3:0:1:e1.2.3
lies t by=3 0:31
alter t set:min.insync.replicas=2
fence 1
reconcile t
join 1 as=second dirs=11 unclean
unfence 1
leave 2
reconcile t
dirs 3 31
elect t 0
reassign t 0:2.3
balance t
producers 3
configure 4: set:min.insync.replicas=2
alter t set:retention.ms=5
features metadata.version=30
delete t
"""

CHANGES = """
create a 2x3 id=q0 conf=retention.ms=5
confirm 1 2 3
alter a set:retention.ms=7 id=q1
alter a set:cleanup.policy=compact id=q2
partitions a to=3 id=q3
delete a id=q4
"""
SIGNED = """
create a 1x1 id=q0
confirm 1
sign
delete a id=q1
sign
"""
RULES = """
rules small id=q0
create a id=q1
create b 5x1 id=q2 conf=retention.ms=99
alter a set:retention.ms=99 id=q3
partitions a to=3 id=q4
delete a id=q5
rules none id=q6
delete a id=q7
"""

APPROVALS = """
rules approval id=q0
create a 4x1 id=q1
create a 4x1 id=q2
create a 4x1 id=q3 approves=q1
confirm 1
partitions a to=5 id=q4
alter a set:retention.ms=7 id=q5
deny q4 id=q6
delete a id=q7
alter a set:retention.ms=7 id=q8 approves=q5
expire-approvals id=q9 at=86400000
"""

HISTORIES = {
    "approvals": ("1", APPROVALS),
    "rules": ("1 2", RULES),
    "access": ("1", ACCESS),
    "cluster": ("1 2 3 cluster", CLUSTER),
    "life": ("1 2 fewer", LIFE),
    "logins": ("1", LOGINS),
    "refusals": ("1 policy", REFUSALS),
    "brokers": ("1@a fewer", BROKERS),
    "real": ("fewer", REAL),
    "changes": ("1 2 3", CHANGES),
    "signed": ("1", SIGNED),
}
ADOPTED = "adopted"
"""The events of a cluster whose metadata log is adopted and handed back. Not created by machine commands."""
FOLLOWED = "followed"
"""The events of a cluster that another controller leads."""


def lines_of(name: str) -> list[bytes]:
    lines = (FOLDER / f"{name}.log").read_text().splitlines()
    words = (line.split()[0] for line in lines if line and not line.startswith(("#", "state ")))
    return [base64.b64decode(word, validate=True) for word in words]


def hash_of(name: str) -> str:
    """Returns the recorded hash of the folded state."""
    lines = (FOLDER / f"{name}.log").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("state "))


def state_hash(records: list[Recorded]) -> str:
    return sha256(stored(fold(records))).hexdigest()


def history(name: str) -> list[Recorded]:
    """Returns the records that the current machine writes for a history."""
    if name == ADOPTED:
        from tests.brokers.kraft.logs import adopted_records

        return adopted_records()
    if name == FOLLOWED:
        from tests.brokers.kraft.follower import followed_records

        return followed_records()
    begin, steps = HISTORIES[name]
    rig: Rig = given(begin)
    for line in steps.strip().splitlines():
        rig.put(command(rig, line))
    return rig.log


def _text(name: str) -> str:
    log = history(name)
    rows = [f"# Events in version {EVENT_VERSION}; written by python -m tests.events.golden {name}"]
    for one in log:
        value = base64.b64encode(encode_event(one.at_ms, one.cause, one.event)).decode()
        rows.append(f"{value}  # {one.offset} {type(one.event).__name__} of {one.cause.command}")
    return "\n".join([*rows, f"state {state_hash(log)}", ""])


def write(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = FOLDER / f"{name}.log"
        path.write_text(_text(name))
        yield path


if __name__ == "__main__":
    for written in write(sys.argv[1:]):
        sys.stdout.write(f"{written}\n")
