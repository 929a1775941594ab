"""Three voters, with Topicwright as the leader, compared with three Kafka voters, each with three Kafka brokers: the
time of creates, and the effect of leader faults.

Both clusters run concurrently and are measured in turn. First without faults: creates through the brokers, as in
`benchmarks.real_brokers`, and quotas set at the leader, which responds when the record is committed. Then rounds of
leader faults (tests/support/quorum_faults.py), under creates, a producer with acks=all and a group, over a network that
can be cut. After each round all acknowledged data must exist. At the end the logs of all voters must be equal, and
every snapshot must match the log. A violation ends the benchmark.

`python -m benchmarks.quorum [--rounds N] [--faults NAME,…] [--creates N] [--release VERSION]
[--clusters NAME,…] [--json FILE]`
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from benchmarks.client import BenchClient
from benchmarks.figures import Figure, percentile, show
from benchmarks.real_brokers import FACTOR, HEAP, PARTITIONS, creates
from controller.kafka.messages import ApiKey, access
from tests.support import tools
from tests.support.network import Network
from tests.support.quorum_cluster import QuorumCluster, quorum_cluster
from tests.support.quorum_faults import FAULTS, Round, check_logs, load_on, one_round

OURS, KAFKAS = "Topicwright", "Kafka"
PARTS: Final = 5
"""Creates and quotas without faults are measured in this many parts, in turn."""
ALTER_QUOTAS: Final = 1
SNAPSHOTS: Final = {"metadata.log.max.record.bytes.between.snapshots": "100000"}
"""A small limit, so that snapshots are taken."""


class Measured(msgspec.Struct):
    """Measurements of one cluster, over all runs."""

    create_ms: list[float] = []
    usable_ms: list[float] = []
    """Until every broker knew the topic and every leader served it."""
    unknown: int = 0
    """Brokers that did not know the topic at the response to its create."""
    silent: int = 0
    """Leaders that did not serve at that time."""
    commit_ms: list[float] = []
    rounds: list[Round] = []
    acknowledged: int = 0
    made: int = 0
    unanswered: int = 0
    log_bytes: int = 0
    snapshots: int = 0

    def seconds(self, fault: str, what: str) -> list[float]:
        """The values of a field in all rounds of a fault."""
        return [getattr(each, what) for each in self.rounds if each.fault == fault]


def undisturbed(clusters: Mapping[str, QuorumCluster], found: Mapping[str, Measured], count: int) -> None:
    """Measure creates through the brokers and quotas at the leader, for each cluster in turn."""
    for part in range(PARTS):
        for name, cluster in clusters.items():
            some, ports = found[name], [each.port for each in cluster.brokers.values()]
            made = creates(ports, count // PARTS)
            some.create_ms += made.answered_ms
            some.usable_ms += made.usable_ms
            some.unknown += made.unknown
            some.silent += made.silent
            leader = cluster.members[cluster.wait_ready().leader_id]
            some.commit_ms += commits(leader.own_address, count // PARTS, part)


def commits(leader: str, count: int, part: int) -> list[float]:
    """The ms that the leader takes to commit a single record."""
    client = BenchClient(leader)
    took = []
    for number in range(count):
        entity = access.EntityData(entity_type="user", entity_name=f"user-{number}")
        change = access.OpData(key="producer_byte_rate", value=1000.0 + part)
        request = access.AlterClientQuotasRequest(entries=(access.EntryData(entity=(entity,), ops=(change,)),))
        began = time.perf_counter()
        response = client.call(ApiKey.ALTER_CLIENT_QUOTAS, ALTER_QUOTAS, request)
        took.append((time.perf_counter() - began) * 1000)
        assert {each.error_code for each in response.entries} == {0}, response
    client.close()
    return took


def lap(name: str, cluster: QuorumCluster, some: Measured, faults: Sequence[str], number: int) -> None:
    """Run one round of each fault."""
    with load_on(cluster, f"kept-{number}") as load:
        for fault in faults:
            one = one_round(cluster, fault, load)
            some.rounds.append(one)
            print(f"{name}: {one}", flush=True)
    some.acknowledged += load.churn.count
    some.made += len(load.creates.made)
    some.unanswered += load.creates.unanswered


def measure(found: Mapping[str, Measured], options: argparse.Namespace) -> None:
    """Run once, and add the results to `found`."""
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        if options.creates:
            with ExitStack() as ending:
                clusters = _start(Path(folder) / "undisturbed", options, None, ending)
                undisturbed(clusters, found, options.creates)
        if options.rounds:
            with ExitStack() as ending:
                network = ending.enter_context(Network())
                clusters = _start(Path(folder) / "rounds", options, network, ending)
                for number in range(options.rounds):
                    for name, cluster in clusters.items():
                        lap(name, cluster, found[name], options.faults.split(","), number)
                for name, cluster in clusters.items():
                    size, snapshots = check_logs(cluster)
                    found[name].log_bytes += size
                    found[name].snapshots += snapshots


def _start(
    folder: Path, options: argparse.Namespace, network: Network | None, ending: ExitStack
) -> dict[str, QuorumCluster]:
    def one(name: str) -> QuorumCluster:
        return ending.enter_context(
            quorum_cluster(
                folder / name,
                ours=int(name == OURS),
                leads=name == OURS,
                version=options.release,
                heap=HEAP,
                settings=SNAPSHOTS,
                our_settings=[f"{key}={value}" for key, value in SNAPSHOTS.items()],
                network=network,
            )
        )

    return {name: one(name) for name in options.clusters.split(",")}


BACK: Final = "the leader is back, all keep up"
"""Kafka's controller does not become leader again."""
REACH: Final = {
    "kill: a create works": "no worse; 2.5 s",
    "term: another leads": "< 0.3 s",
    f"kill: {BACK}": "< 2 s",
    "create, median": "< 0.7 of Kafka's",
    "create, 99th percentile": "< 1.2 of Kafka's",
}


def figures(ours: Measured, kafkas: Measured) -> list[Figure]:
    """Returns the table: medians and their ratio, then the worst values."""
    rows: list[Figure] = []

    def row(what: str, unit: str, mine: Sequence[float], theirs: Sequence[float], part: float = 0.5) -> None:
        if mine and theirs:
            one, other = percentile(mine, part), percentile(theirs, part)
            note = f"{one / max(other, 1e-9):.2f} of Kafka's; {len(mine)} and {len(theirs)}"
            rows.append(Figure(what, unit, one, other, REACH.get(what, ""), note))
        elif mine:
            rows.append(Figure(what, unit, percentile(mine, part), None, REACH.get(what, ""), f"{len(mine)}"))

    for part, name in ((0.5, "median"), (0.99, "99th percentile")):
        row(f"create, {name}", "ms", ours.create_ms, kafkas.create_ms, part)
        row(f"create usable everywhere, {name}", "ms", ours.usable_ms, kafkas.usable_ms, part)
        row(f"one record committed, {name}", "ms", ours.commit_ms, kafkas.commit_ms, part)
    for fault in FAULTS:
        for field, meaning in (("led_s", "another leads"), ("works_s", "a create works"), ("back_s", BACK)):
            for part, name in ((0.5, ""), (1.0, ", worst")):
                row(f"{fault}: {meaning}{name}", "s", ours.seconds(fault, field), kafkas.seconds(fault, field), part)
    counted = (
        ("create: did not know the topic", "brokers", "unknown", f"of {FACTOR} a create"),
        ("create: did not serve", "leaders", "silent", f"of {PARTITIONS} a create"),
        ("records acknowledged, 0 lost", "", "acknowledged", ""),
        ("creates answered, 0 lost", "", "made", ""),
        ("creates without an answer", "", "unanswered", "given up after 5 s"),
        ("metadata logs alike", "bytes", "log_bytes", ""),
        ("snapshots that say what the log says", "", "snapshots", ""),
    )
    rows += [
        Figure(what, unit, getattr(ours, one), getattr(kafkas, one), "", note) for what, unit, one, note in counted
    ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quorum", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each fault; default %(default)s")
    parser.add_argument("--faults", default=",".join(FAULTS), metavar="NAME,…", help="default %(default)s")
    parser.add_argument("--creates", type=int, default=300, help="undisturbed; default %(default)s")
    parser.add_argument("--release", default=tools.KAFKA_SERVER, help="of Kafka; default %(default)s")
    both = f"{OURS},{KAFKAS}"
    parser.add_argument("--clusters", default=both, metavar="NAME,…", help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what is measured there, and show all of it")
    options = parser.parse_args()
    if unknown := set(options.faults.split(",")) - set(FAULTS):
        parser.error(f"--faults: no {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    if unknown := set(options.clusters.split(",")) - {OURS, KAFKAS}:
        parser.error(f"--clusters: no {', '.join(sorted(unknown))}; there are {both}")
    found = {OURS: Measured(), KAFKAS: Measured()}
    if options.json is not None and options.json.exists():
        found = msgspec.json.decode(options.json.read_bytes(), type=dict[str, Measured])
    try:
        measure(found, options)
    finally:  # completed rounds count, even if a later one fails
        if options.json is not None:
            options.json.write_bytes(msgspec.json.encode(found))
    show(figures(found[OURS], found[KAFKAS]), as_json=False)


if __name__ == "__main__":
    main()
