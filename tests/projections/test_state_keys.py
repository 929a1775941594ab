"""No kind of state key is a prefix of another."""

from __future__ import annotations

from itertools import permutations

from controller.brokers.kraft.log import acl_ids, projector
from controller.stream.log import partition
from events.logs.archive import manifest
from projections.store import (
    access_state,
    request_index,
    store,
    stored_topics,
    topic_indexes,
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
    "replicas": topic_indexes.REPLICAS,
    "requests": request_index.REQUEST,
    "facets": request_index.FACET,
    "unhealthy": topic_indexes.UNHEALTHY,
    "tallies": topic_indexes.TALLIES,
    "created": topic_indexes.CREATED,
    "created in a range": topic_indexes.CREATED_IN,
    "tree": tree.HEAD,
    "archive": manifest.NOTED,
}
OF_A_PARTITION = {"position": partition.POSITION}
OF_A_VOTER = {"mark": projector.MARK, "ids of entries": acl_ids.ENTRY}


def test_no_kind_of_key_is_a_prefix_of_another() -> None:
    for others in (OF_A_PARTITION, OF_A_VOTER):
        for (one, key), (other, longer) in permutations({**OF_A_LOG, **others}.items(), 2):
            assert not longer.startswith(key), f"{one} is a prefix of {other}"
