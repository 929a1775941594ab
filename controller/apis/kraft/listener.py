"""What a controller of real brokers speaks for clients, directly or in the envelopes of brokers.

The APIs that only brokers use for themselves (Fetch of the metadata log, registration, heartbeats, …) come from the
fleet and are added to these.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.apis.kraft.allocate_producer_ids import AllocateProducerIdsHandler
from controller.apis.kraft.alter_partition import AlterPartitionHandler
from controller.apis.kraft.assign_replicas_to_dirs import AssignReplicasToDirsHandler
from controller.apis.kraft.delegation_tokens import refuse_creation, refuse_expiry, refuse_renewal
from controller.apis.kraft.describe_cluster import DescribeControllersHandler
from controller.apis.kraft.elect_leaders import ElectLeadersHandler
from controller.apis.kraft.envelope import EnvelopeHandler
from controller.apis.kraft.epochs import BrokerEpochs
from controller.apis.kraft.permissions import needing
from controller.apis.kraft.reassignments import AlterPartitionReassignmentsHandler, ListReassignmentsHandler
from controller.apis.kraft.voters import refuse_adding, refuse_removal
from controller.apis.sasl import not_expected
from controller.apis.tables import administration, descriptions, rows
from controller.front.front import Front
from controller.kafka.handling import ApiHandler, Handler
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages.add_raft_voter import AddRaftVoterResponse
from controller.kafka.messages.remove_raft_voter import RemoveRaftVoterResponse
from controller.machine.configs.resource_configs import CLIENT_METRICS, GROUPS
from controller.machine.state import BROKERS

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
        **administration(front, WAIT_MS_MAX, WITH_CONFIGS),
        **descriptions(front),
        ApiKey.DESCRIBE_CLUSTER: DescribeControllersHandler(front),
        ApiKey.ELECT_LEADERS: ElectLeadersHandler(front),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsHandler(front),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListReassignmentsHandler(front),
        ApiKey.ALTER_PARTITION: AlterPartitionHandler(front, epochs),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: AssignReplicasToDirsHandler(front, epochs),
        ApiKey.ALLOCATE_PRODUCER_IDS: AllocateProducerIdsHandler(front, epochs),
        ApiKey.CREATE_DELEGATION_TOKEN: refuse_creation,
        ApiKey.RENEW_DELEGATION_TOKEN: refuse_renewal,
        ApiKey.EXPIRE_DELEGATION_TOKEN: refuse_expiry,
        ApiKey.ADD_RAFT_VOTER: needing(front, "Alter", refuse_adding, AddRaftVoterResponse),
        ApiKey.REMOVE_RAFT_VOTER: needing(front, "Alter", refuse_removal, RemoveRaftVoterResponse),
        **of_brokers,
    }
    table = rows({**handlers, **not_expected}, versions_max)
    envelope = EnvelopeHandler(table, lambda context: front.grants(context, "ClusterAction"))
    api = APIS[ApiKey.ENVELOPE]
    table[ApiKey.ENVELOPE] = ApiHandler(api.min_version, api.max_version, envelope)
    return table
