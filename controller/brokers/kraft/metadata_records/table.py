"""Every metadata record by its key and version. Generated from Kafka's schemas."""

from controller.brokers.kraft.metadata_records.abort_transaction_record import AbortTransactionRecordV0
from controller.brokers.kraft.metadata_records.access_control_entry_record import AccessControlEntryRecordV0
from controller.brokers.kraft.metadata_records.begin_transaction_record import BeginTransactionRecordV0
from controller.brokers.kraft.metadata_records.broker_registration_change_record import (
    BrokerRegistrationChangeRecordV0,
    BrokerRegistrationChangeRecordV1,
    BrokerRegistrationChangeRecordV2,
    BrokerRegistrationChangeRecordV3,
)
from controller.brokers.kraft.metadata_records.clear_elr_record import ClearElrRecordV0
from controller.brokers.kraft.metadata_records.client_quota_record import ClientQuotaRecordV0
from controller.brokers.kraft.metadata_records.config_record import ConfigRecordV0
from controller.brokers.kraft.metadata_records.delegation_token_record import DelegationTokenRecordV0
from controller.brokers.kraft.metadata_records.end_transaction_record import EndTransactionRecordV0
from controller.brokers.kraft.metadata_records.feature_level_record import FeatureLevelRecordV0
from controller.brokers.kraft.metadata_records.fence_broker_record import FenceBrokerRecordV0
from controller.brokers.kraft.metadata_records.no_op_record import NoOpRecordV0
from controller.brokers.kraft.metadata_records.partition_change_record import (
    PartitionChangeRecordV0,
    PartitionChangeRecordV1,
    PartitionChangeRecordV2,
)
from controller.brokers.kraft.metadata_records.partition_record import (
    PartitionRecordV0,
    PartitionRecordV1,
    PartitionRecordV2,
)
from controller.brokers.kraft.metadata_records.producer_ids_record import ProducerIdsRecordV0
from controller.brokers.kraft.metadata_records.register_broker_record import (
    RegisterBrokerRecordV0,
    RegisterBrokerRecordV1,
    RegisterBrokerRecordV2,
    RegisterBrokerRecordV3,
    RegisterBrokerRecordV4,
)
from controller.brokers.kraft.metadata_records.register_controller_record import RegisterControllerRecordV0
from controller.brokers.kraft.metadata_records.remove_access_control_entry_record import (
    RemoveAccessControlEntryRecordV0,
)
from controller.brokers.kraft.metadata_records.remove_delegation_token_record import RemoveDelegationTokenRecordV0
from controller.brokers.kraft.metadata_records.remove_topic_record import RemoveTopicRecordV0
from controller.brokers.kraft.metadata_records.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecordV0,
)
from controller.brokers.kraft.metadata_records.topic_record import TopicRecordV0
from controller.brokers.kraft.metadata_records.unfence_broker_record import UnfenceBrokerRecordV0
from controller.brokers.kraft.metadata_records.unregister_broker_record import UnregisterBrokerRecordV0
from controller.brokers.kraft.metadata_records.user_scram_credential_record import UserScramCredentialRecordV0
from controller.brokers.kraft.metadata_records.zk_migration_state_record import ZkMigrationStateRecordV0

RECORDS: dict[tuple[int, int], type] = {
    (25, 0): AbortTransactionRecordV0,
    (18, 0): AccessControlEntryRecordV0,
    (23, 0): BeginTransactionRecordV0,
    (17, 0): BrokerRegistrationChangeRecordV0,
    (17, 1): BrokerRegistrationChangeRecordV1,
    (17, 2): BrokerRegistrationChangeRecordV2,
    (17, 3): BrokerRegistrationChangeRecordV3,
    (28, 0): ClearElrRecordV0,
    (14, 0): ClientQuotaRecordV0,
    (4, 0): ConfigRecordV0,
    (10, 0): DelegationTokenRecordV0,
    (24, 0): EndTransactionRecordV0,
    (12, 0): FeatureLevelRecordV0,
    (7, 0): FenceBrokerRecordV0,
    (20, 0): NoOpRecordV0,
    (5, 0): PartitionChangeRecordV0,
    (5, 1): PartitionChangeRecordV1,
    (5, 2): PartitionChangeRecordV2,
    (3, 0): PartitionRecordV0,
    (3, 1): PartitionRecordV1,
    (3, 2): PartitionRecordV2,
    (15, 0): ProducerIdsRecordV0,
    (0, 0): RegisterBrokerRecordV0,
    (0, 1): RegisterBrokerRecordV1,
    (0, 2): RegisterBrokerRecordV2,
    (0, 3): RegisterBrokerRecordV3,
    (0, 4): RegisterBrokerRecordV4,
    (27, 0): RegisterControllerRecordV0,
    (19, 0): RemoveAccessControlEntryRecordV0,
    (26, 0): RemoveDelegationTokenRecordV0,
    (9, 0): RemoveTopicRecordV0,
    (22, 0): RemoveUserScramCredentialRecordV0,
    (2, 0): TopicRecordV0,
    (8, 0): UnfenceBrokerRecordV0,
    (1, 0): UnregisterBrokerRecordV0,
    (11, 0): UserScramCredentialRecordV0,
    (21, 0): ZkMigrationStateRecordV0,
}
