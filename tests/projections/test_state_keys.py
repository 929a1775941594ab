"""Everybody who keeps something among a log's state keys has keys of his own."""

from __future__ import annotations

from itertools import permutations

from controller.brokers.kraft.log import acl_ids, projector
from controller.stream.log import partition
from events.logs.archive import manifest
from projections.store import (
    access_state,
    broker_index,
    creation_index,
    request_index,
    standing_index,
    store,
    stored_topics,
    tree,
)

OF_A_LOG = {
    "topics": stored_topics.TOPIC,
    "ids": store.TOPIC_ID,
    "waiting": store.WAITING,
    "cluster": store.CLUSTER,
    "counts": store.COUNTS,
    "users": access_state.SCRAM,
    "entries": access_state.ACL,
    "quotas": access_state.QUOTA,
    "replicas": broker_index.REPLICAS,
    "requests": request_index.REQUEST,
    "facets": request_index.FACET,
    "trouble": standing_index.TROUBLE,
    "tallies": standing_index.TALLIES,
    "created": standing_index.CREATED,
    "creation_index": creation_index.CREATED_IN,
    "tree": tree.HEAD,
    "archive": manifest.NOTED,
}
OF_A_PARTITION = {"position": partition.POSITION}
OF_A_VOTER = {"mark": projector.MARK, "ids of entries": acl_ids.ENTRY}


def test_no_key_begins_as_another() -> None:
    for others in (OF_A_PARTITION, OF_A_VOTER):
        for (one, key), (other, longer) in permutations({**OF_A_LOG, **others}.items(), 2):
            assert not longer.startswith(key), f"what is kept of {other} begins as what is kept of {one}"
