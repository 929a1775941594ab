"""Whatever happens to the leader of a quorum with voters of ours, under creates, a producer and a group."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.network import Network
from tests.support.quorum_cluster import quorum_cluster
from tests.support.quorum_faults import check_logs, load_on, one_round
from tests.support.quorum_logs import assert_one_history, snapshots_in
from tests.support.real_brokers import until

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20000"}


@pytest.mark.parametrize(("ours", "faults"), [(1, ("kill", "stop", "cut-out", "disk")), (2, ("kill",))])
def test_no_acknowledged_record_is_lost_and_all_logs_are_equal(
    tmp_path: Path, ours: int, faults: tuple[str, ...]
) -> None:
    """With one broker: without a controller three take both cores, and the voters that are to elect one get neither.
    A leader that is stopped is as silent as one that is cut in both directions, which the soak does."""
    our_settings = [f"{key}={value}" for key, value in SNAPSHOTS.items()]
    if ours > 1:  # who comes back finds its place in the log gone, and has the other's events nevertheless
        our_settings.append("metadata.max.retention.bytes=1")
    with (
        Network() as network,
        quorum_cluster(
            tmp_path,
            ours=ours,
            leads=True,
            brokers=1,
            settings={**SNAPSHOTS, "offsets.topic.replication.factor": "1"},
            our_settings=our_settings,
            network=network,
        ) as cluster,
    ):
        with load_on(cluster) as load:
            for fault in faults:
                one_round(cluster, fault, load)
            folders = [each.metadata for each in cluster.members.values()]
            until(lambda: sum(len(snapshots_in(each)) for each in folders) > 1, 240, "two snapshots were taken")
            until(lambda: load.churn.count > 100 * len(faults), 240, "records were acknowledged")
            until(lambda: len(load.creates.made) > 10 * len(faults), 240, "creates were answered")
        size, snapshots = check_logs(cluster)
        assert size > (20_000 if ours == 1 else 1_000)
        assert snapshots > 1
        for one in cluster.ours:
            assert one.process is not None
            assert one.process.stop(within_s=60) == 0, one.process.output[-4000:]
        assert assert_one_history([each.folder for each in cluster.ours]) > len(load.creates.made)
