"""Response times of a gateway with workers, compared with the embedded controller in the same run.

The frames and the client are those of `benchmarks.creates`. The gateway has one or two workers (plain driver, simulated
brokers) and one node of a real Kafka: a request that waits for a topic crosses Kafka twice: once with the command, and
once with the decision, the brokers' confirmations and the answer.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.creates import in_requests, one_by_one, pipelined
from benchmarks.servers import kafka, topicwright
from tests.support.stream import stream

QUIET = {"log.level": "warning"}
SAFE = {**QUIET, "stream.replication.factor": "-1"}
"""Also the workers' default replication factor."""


class Row(msgspec.Struct, frozen=True):
    """One figure of each server."""

    work: str
    unit: str
    gateway: float
    gateway_of_two: float
    embedded: float


def measure(address: str, scale: float) -> dict[tuple[str, str], float]:
    """All figures of one server."""
    count = max(20, round(1000 * scale))
    median, p99, rate = one_by_one(address, count, False)
    dry, dry_p99, _ = one_by_one(address, count, True)
    return {
        ("one create after another, median", "ms"): median,
        ("one create after another, 99 %", "ms"): p99,
        ("one create after another", "creates/s"): rate,
        ("validate-only one by one, median", "ms"): dry,
        ("validate-only one by one, 99 %", "ms"): dry_p99,
        ("creates pipelined on one connection", "creates/s"): pipelined(address, count * 5),
        ("300 topics in one request, created", "topics/s"): in_requests(address, max(3, round(20 * scale)), 300, False),
    }


def run(scale: float = 1.0) -> list[Row]:
    """Measure a gateway with one worker, a gateway with two, and the embedded controller."""
    gateways = []
    with TemporaryDirectory(prefix="topicwright-bench-") as folder, kafka() as address:
        for workers in (1, 2):
            names = f"bench-{workers}"
            with stream(Path(folder) / names, address, names, SAFE, workers=workers, gateways=0) as running:
                gateways.append(measure(running.start_gateway(QUIET).kafka, scale))
    with TemporaryDirectory(prefix="topicwright-bench-") as folder, topicwright(Path(folder) / "data") as ours:
        embedded = measure(ours.kafka, scale)
    one, two = gateways
    return [Row(*key, one[key], two[key], value) for key, value in embedded.items()]


def main() -> None:
    """Run from the command line; takes about a minute."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream_gateway", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="so many times the requests; %(default)s")
    options = parser.parse_args()
    rows = run(options.scale)
    if options.json:
        print(msgspec.json.encode(rows).decode())
        return
    print(f"{'work':<40}{'unit':<11}{'gateway, 1 worker':>17}{'2 workers':>12}{'embedded':>12}")
    for row in rows:
        print(f"{row.work:<40}{row.unit:<11}{row.gateway:>17,.1f}{row.gateway_of_two:>12,.1f}{row.embedded:>12,.1f}")


if __name__ == "__main__":
    main()
