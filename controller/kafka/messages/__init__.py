"""Kafka's messages as plain values: one class for all versions of an entity, with the fields that Topicwright uses, one
module for a family of APIs.

`ApiKey` has a row for every API that the codec supports. To add one: a row there, and its classes `NAMERequest` and
`NAMEResponse` in the module of its family. The wire layout of each version comes from kio's schema (see
`controller.kafka.codec.schema`).

They are written by hand because types and start need them before kio is imported: kio's classes of these versions take
1.4 s of CPU time to import, these 0.03 s.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.kafka.messages import access, clients, cluster, configs, quorum, topics
from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, Encoded, Message

__all__ = ["APIS", "OPERATIONS_OMITTED", "ZERO_UUID", "Api", "ApiKey", "Encoded", "Message"]


class ApiKey(enum.IntEnum):
    """Kafka's number of each supported API, with the first and the last version that the codec reads and writes."""

    min_version: int
    max_version: int

    def __new__(cls, number: int, min_version: int, max_version: int) -> ApiKey:
        key = int.__new__(cls, number)
        key._value_, key.min_version, key.max_version = number, min_version, max_version
        return key

    PRODUCE = 0, 3, 13
    FETCH = 1, 12, 18
    LIST_OFFSETS = 2, 1, 11
    METADATA = 3, 0, 13
    OFFSET_FETCH = 9, 1, 7
    FIND_COORDINATOR = 10, 0, 6
    DESCRIBE_GROUPS = 15, 0, 6
    LIST_GROUPS = 16, 0, 5
    SASL_HANDSHAKE = 17, 0, 1
    API_VERSIONS = 18, 0, 5
    CREATE_TOPICS = 19, 0, 7
    DELETE_TOPICS = 20, 0, 6
    DESCRIBE_ACLS = 29, 1, 3
    CREATE_ACLS = 30, 1, 3
    DELETE_ACLS = 31, 1, 3
    DESCRIBE_CONFIGS = 32, 0, 4
    ALTER_CONFIGS = 33, 0, 2
    DESCRIBE_LOG_DIRS = 35, 1, 5
    SASL_AUTHENTICATE = 36, 0, 2
    CREATE_PARTITIONS = 37, 0, 3
    CREATE_DELEGATION_TOKEN = 38, 1, 3
    RENEW_DELEGATION_TOKEN = 39, 1, 2
    EXPIRE_DELEGATION_TOKEN = 40, 1, 2
    ELECT_LEADERS = 43, 0, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1
    ALTER_CLIENT_QUOTAS = 49, 0, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0
    VOTE = 52, 0, 2
    BEGIN_QUORUM_EPOCH = 53, 0, 1
    END_QUORUM_EPOCH = 54, 0, 1
    DESCRIBE_QUORUM = 55, 0, 2
    ALTER_PARTITION = 56, 2, 3
    UPDATE_FEATURES = 57, 0, 2
    ENVELOPE = 58, 0, 0
    FETCH_SNAPSHOT = 59, 0, 1
    DESCRIBE_CLUSTER = 60, 0, 2
    BROKER_REGISTRATION = 62, 0, 4
    BROKER_HEARTBEAT = 63, 0, 2
    UNREGISTER_BROKER = 64, 0, 0
    ALLOCATE_PRODUCER_IDS = 67, 0, 0
    CONTROLLER_REGISTRATION = 70, 0, 0
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0
    ADD_RAFT_VOTER = 80, 0, 1
    REMOVE_RAFT_VOTER = 81, 0, 0
    UPDATE_RAFT_VOTER = 82, 0, 0
    UNREGISTER_CONTROLLER = 94, 0, 0


class Api(msgspec.Struct, frozen=True):
    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int


_FAMILIES: Final = (access, clients, cluster, configs, quorum, topics)


def _api(key: ApiKey) -> Api:
    name = "".join(word.capitalize() for word in key.name.split("_"))
    family = next(module for module in _FAMILIES if hasattr(module, f"{name}Request"))
    messages = getattr(family, f"{name}Request"), getattr(family, f"{name}Response")
    return Api(key, name, *messages, key.min_version, key.max_version)


APIS: Final[Mapping[int, Api]] = {key: _api(key) for key in ApiKey}
"""Every supported API, by key."""
