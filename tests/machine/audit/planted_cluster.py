"""Faults planted in brokers, ACLs, quotas, credentials, other cluster state, and answers."""

from events import access, catalog
from events.names import BrokerId, RequestId
from tests.machine.audit.planted import Faults, Log, again, at, changed, then, without

ACL = access.Acl(2, 4, "pay.", "User:bob", "*", 5, 3)
BY = (RequestId("r1"), "User:ann", "terraform")
USER = (("user", "bob"),)


def _acls(kind: type[access.AclsCreated | access.AclsDeleted]) -> catalog.Event:
    return kind(BY[0], (ACL,), *BY[1:])


def _quota(value: float | None) -> catalog.Event:
    values = () if value is None else (("controller_mutation_rate", value),)
    removed = ("controller_mutation_rate",) if value is None else ()
    return access.QuotasChanged(BY[0], USER, values, removed, *BY[1:])


def an_acl_deleted_that_does_not_exist(log: Log) -> Log:
    created = then(log, "CreateAcls", "r1", _acls(access.AclsCreated))
    return then(created, "DeleteAcls", "r1", *2 * (_acls(access.AclsDeleted),))


def a_credential_removed_that_does_not_exist(log: Log) -> Log:
    removed = access.ScramCredentialRemoved(BY[0], "bob", "SCRAM-SHA-256", *BY[1:])
    return then(log, "AlterUserScramCredentials", "r1", removed)


def no_refusal_counted(log: Log) -> Log:
    refused = access.RequestsRefused("User:eve", None, "", "Metadata", "Describe", "Topic:a", 29, "authorizer", 0, 1)
    return then(log, "RecordRefusals", "r1", refused)


def producer_ids_allocated_twice(log: Log) -> Log:
    blocks = (catalog.ProducerIdsAllocated(BrokerId(1), 1, first, first + 1000) for first in (0, 1000, 1500))
    return then(log, "AllocateProducerIds", "r1", *blocks)


FAULTS: Faults = {
    "answer-as-decided": {
        "answered_with_another_code": lambda log: changed(
            log, at(log, catalog.CreateAnswered, error_code=36), error_code=37
        )
    },
    "broker-life": {
        "fenced_twice": lambda log: again(log, at(log, catalog.BrokerFenced)),
        "an_epoch_used_again": lambda log: changed(
            log, at(log, catalog.BrokerRegistered, broker_id=BrokerId(3)), broker_epoch=1
        ),
        "live_though_never_registered": lambda log: without(
            log, at(log, catalog.BrokerRegistered, broker_id=BrokerId(2))
        ),
    },
    "acl-life": {
        "an_acl_created_twice": lambda log: then(
            log, "CreateAcls", "r1", _acls(access.AclsCreated), _acls(access.AclsCreated)
        ),
        "an_acl_deleted_that_does_not_exist": an_acl_deleted_that_does_not_exist,
        "no_acl_created": lambda log: then(log, "CreateAcls", "r1", access.AclsCreated(BY[0], (), *BY[1:])),
    },
    "quota-life": {
        "a_quota_removed_that_does_not_exist": lambda log: then(
            log, "AlterClientQuotas", "r1", *map(_quota, (7.5, None, None))
        ),
        "a_quota_set_to_what_it_is": lambda log: then(
            log, "AlterClientQuotas", "r1", *map(_quota, (7.5, None, 7.5, 8.0, 8.0))
        ),
        "a_quota_of_nothing": lambda log: then(log, "AlterClientQuotas", "r1", _quota(0.0)),
    },
    "credential-life": {
        "a_credential_removed_that_does_not_exist": a_credential_removed_that_does_not_exist,
        "a_second_login_secret": lambda log: then(
            log, "DrawLoginSecret", "r1", *2 * (access.LoginSecretDrawn(bytes(32)),)
        ),
    },
    "refusals-counted": {"no_refusal_counted": no_refusal_counted},
    "configs-of-resources": {
        "configs_of_a_topic_as_of_a_resource": lambda log: then(
            log, "AlterResourceConfigs", "r1", catalog.ResourceConfigsChanged(BY[0], 2, "a", (), *BY[1:])
        )
    },
    "producer-ids-rise": {
        "producer_ids_allocated_twice": producer_ids_allocated_twice,
        "no_producer_id_allocated": lambda log: then(
            log, "AllocateProducerIds", "r1", catalog.ProducerIdsAllocated(BrokerId(1), 1, 1000, 1000)
        ),
    },
}
