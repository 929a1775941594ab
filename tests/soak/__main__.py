"""`python -m tests.soak [--minutes N] [--seed N]`: exit code 0, or 1 with the failures."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.soak.soak import Plan, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long; default 30")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="of the misfortunes; default: any")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="over these brokers, with a gateway; 0 for neither")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that all started processes are ended
    plan = Plan(options.minutes, options.seed, options.brokers, options.workers)
    print(f"seed {plan.seed}, {plan.minutes:g} minutes; creates and reads are count × median/99 % of them", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="topicwright-soak-"))
    outcome = soak(folder, plan, partial(print, flush=True))
    print(outcome.table)
    for each in outcome.wrong:
        print(f"WRONG: {each}")
    if outcome.wrong:
        print(f"seed {plan.seed}: {len(outcome.wrong)} things are wrong; all folders are in {folder}")
        return 1
    print("nothing was lost")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
