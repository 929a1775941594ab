"""What a controller of real brokers speaks for clients, directly or in the envelopes of brokers.

The APIs that only brokers use for themselves (Fetch of the metadata log, registration, heartbeats, …) come from the
fleet and are added to these.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.kafka.handlers.acls import CreateAclsHandler, DeleteAclsHandler, DescribeAclsHandler
from controller.kafka.handlers.client_quotas import AlterClientQuotasHandler, DescribeClientQuotasHandler
from controller.kafka.handlers.configs import (
    AlterConfigsHandler,
    DescribeConfigsHandler,
    IncrementalAlterConfigsHandler,
)
from controller.kafka.handlers.create_partitions import CreatePartitionsHandler
from controller.kafka.handlers.create_topics import CreateTopicsHandler
from controller.kafka.handlers.delete_topics import DeleteTopicsHandler
from controller.kafka.handlers.kraft.allocate_producer_ids import AllocateProducerIdsHandler
from controller.kafka.handlers.kraft.alter_partition import AlterPartitionHandler
from controller.kafka.handlers.kraft.assign_replicas_to_dirs import AssignReplicasToDirsHandler
from controller.kafka.handlers.kraft.delegation_tokens import refuse_creation, refuse_expiry, refuse_renewal
from controller.kafka.handlers.kraft.describe_cluster import DescribeControllersHandler
from controller.kafka.handlers.kraft.elect_leaders import ElectLeadersHandler
from controller.kafka.handlers.kraft.envelope import EnvelopeHandler
from controller.kafka.handlers.kraft.epochs import BrokerEpochs
from controller.kafka.handlers.kraft.permissions import needing
from controller.kafka.handlers.kraft.reassignments import AlterPartitionReassignmentsHandler, ListReassignmentsHandler
from controller.kafka.handlers.kraft.voters import refuse_adding, refuse_removal
from controller.kafka.handlers.sasl import not_expected
from controller.kafka.handlers.user_scram_credentials import (
    AlterUserScramCredentialsHandler,
    DescribeUserScramCredentialsHandler,
)
from controller.kafka.handling import ApiHandler, Handler
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages.add_raft_voter import AddRaftVoterResponse
from controller.kafka.messages.remove_raft_voter import RemoveRaftVoterResponse
from controller.machine.partition_rules import BROKERS
from controller.machine.resource_configs import CLIENT_METRICS, GROUPS
from controller.runtime.front import Front

WAIT_MS_MAX = 25_000
"""How long a create may keep a broker waiting: it forwards one request at a time, and gives up after 30 s."""
WITH_CONFIGS = frozenset({BROKERS, CLIENT_METRICS, GROUPS})


def kraft_listener(
    front: Front, epochs: BrokerEpochs, of_brokers: Mapping[int, Handler], versions_max: Mapping[str, int]
) -> dict[int, ApiHandler]:
    """The table of a listener for real brokers; `of_brokers` are the handlers that the fleet brings.

    ApiVersions is to be added by `with_api_versions`, with the features that the fleet knows.
    """
    handlers: dict[int, Handler] = {
        ApiKey.CREATE_TOPICS: CreateTopicsHandler(front, WAIT_MS_MAX),
        ApiKey.DELETE_TOPICS: DeleteTopicsHandler(front),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(front),
        ApiKey.ALTER_CONFIGS: AlterConfigsHandler(front, WITH_CONFIGS),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsHandler(front, WITH_CONFIGS),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(front),
        ApiKey.DESCRIBE_CLUSTER: DescribeControllersHandler(front),
        ApiKey.ELECT_LEADERS: ElectLeadersHandler(front),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsHandler(front),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListReassignmentsHandler(front),
        ApiKey.ALTER_PARTITION: AlterPartitionHandler(front, epochs),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: AssignReplicasToDirsHandler(front, epochs),
        ApiKey.ALLOCATE_PRODUCER_IDS: AllocateProducerIdsHandler(front, epochs),
        ApiKey.CREATE_ACLS: CreateAclsHandler(front),
        ApiKey.DELETE_ACLS: DeleteAclsHandler(front),
        ApiKey.DESCRIBE_ACLS: DescribeAclsHandler(front),
        ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasHandler(front),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasHandler(front),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsHandler(front),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsHandler(front),
        ApiKey.CREATE_DELEGATION_TOKEN: refuse_creation,
        ApiKey.RENEW_DELEGATION_TOKEN: refuse_renewal,
        ApiKey.EXPIRE_DELEGATION_TOKEN: refuse_expiry,
        ApiKey.ADD_RAFT_VOTER: needing(front, "Alter", refuse_adding, AddRaftVoterResponse),
        ApiKey.REMOVE_RAFT_VOTER: needing(front, "Alter", refuse_removal, RemoveRaftVoterResponse),
        **of_brokers,
    }
    table: dict[int, ApiHandler] = {}
    for key, handle in [*handlers.items(), *not_expected.items()]:
        api = APIS[key]
        table[key] = ApiHandler(api.min_version, min(api.max_version, versions_max.get(api.name, 99)), handle)
    envelope = EnvelopeHandler(table, lambda context: front.grants(context, "ClusterAction"))
    api = APIS[ApiKey.ENVELOPE]
    table[ApiKey.ENVELOPE] = ApiHandler(api.min_version, api.max_version, envelope)
    return table
