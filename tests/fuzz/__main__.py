"""Fuzzes the Kafka listener: `python -m tests.fuzz --seconds 3600 --seed 7`.

With `--worst` it sends the most expensive requests of each API, in its oldest and newest version. It prints how long
the event loop was blocked, its processor time, and the number of objects that remain.
"""

import argparse
import random
import time

from controller.kafka.messages import APIS
from tests.fuzz.frames import worst
from tests.fuzz.fuzzing import Found, fuzz, give
from tests.fuzz.target import LIMITS, target


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--worst", action="store_true")
    parser.add_argument("--api", type=int, help="with --worst: the key of one API, in all its versions")
    options = parser.parse_args()
    if options.worst:
        show_worst(options.api)
        return
    print(f"seed {options.seed}", flush=True)
    with target() as served:
        ends = time.monotonic() + options.seconds
        found = fuzz(served, options.seed, lambda _: time.monotonic() > ends)
    print(found)


def show_worst(only: int | None) -> None:
    """Print blocked time, processor time and remaining objects for the worst requests of each API and version."""
    shown: list[tuple[Found, str]] = []
    with target() as served:
        for key, row in sorted(served.table.items()):
            versions = range(row.min_version, row.max_version + 1)
            for version in versions if only == key else {versions[0], versions[-1]} if only is None else ():
                for name, frame in worst(key, version, row, LIMITS.request_bytes_max):
                    started = time.monotonic()
                    found = give(served, frame, 0)
                    title = f"{APIS[key].name} v{version} {name}: {time.monotonic() - started:.2f} s"
                    shown.append((found, title))
                    print(title, found, flush=True)
    print("\nThe longest:")
    for found, title in sorted(shown, key=lambda one: -one[0].worked_s)[:15]:
        print(f"{found.worked_s * 1000:6.0f} ms  {title}")


if __name__ == "__main__":
    main()
