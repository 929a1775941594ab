"""Whatever happens to the leader of a quorum with a voter of ours, under creates, a producer and a group."""

from __future__ import annotations

from pathlib import Path

from tests.support.network import Network
from tests.support.quorum_cluster import quorum_cluster
from tests.support.quorum_faults import FAULTS, check_logs, load_on, one_round

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20000"}


def test_nothing_that_was_acknowledged_is_lost_and_all_logs_agree(tmp_path: Path) -> None:
    ours = [f"{key}={value}" for key, value in SNAPSHOTS.items()]
    with (
        Network() as network,
        quorum_cluster(tmp_path, ours=1, settings=SNAPSHOTS, our_settings=ours, network=network) as cluster,
    ):
        with load_on(cluster) as load:
            for fault in FAULTS:
                one_round(cluster, fault, load)
        assert load.churn.count > 500
        assert len(load.creates.made) > 50
        size, snapshots = check_logs(cluster)
        assert size > 20_000
        assert snapshots > 2
