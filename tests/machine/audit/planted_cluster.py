"""Faults planted in brokers, ACLs, quotas, credentials and other things of the cluster, and in answers."""

from __future__ import annotations

from events import access, catalog
from events.names import BrokerId, RequestId
from tests.machine.audit.planted import Log, again, at, caught_by, changed, then, without

ACL = access.Acl(2, 4, "pay.", "User:bob", "*", 5, 3)
BY = (RequestId("r1"), "User:ann", "terraform")
USER = (("user", "bob"),)


def _acls(kind: type[access.AclsCreated | access.AclsDeleted]) -> catalog.Event:
    return kind(BY[0], (ACL,), *BY[1:])


def _quota(value: float | None) -> catalog.Event:
    values = () if value is None else (("controller_mutation_rate", value),)
    removed = ("controller_mutation_rate",) if value is None else ()
    return access.QuotasChanged(BY[0], USER, values, removed, *BY[1:])


@caught_by("answer-as-decided")
def answered_with_another_code(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateAnswered, error_code=36), error_code=37)


@caught_by("broker-life")
def fenced_twice(log: Log) -> Log:
    return again(log, at(log, catalog.BrokerFenced))


@caught_by("broker-life")
def an_epoch_used_again(log: Log) -> Log:
    return changed(log, at(log, catalog.BrokerRegistered, broker_id=BrokerId(3)), broker_epoch=1)


@caught_by("broker-life")
def live_though_never_registered(log: Log) -> Log:
    return without(log, at(log, catalog.BrokerRegistered, broker_id=BrokerId(2)))


@caught_by("acl-life")
def an_acl_created_twice(log: Log) -> Log:
    return then(log, "CreateAcls", "r1", _acls(access.AclsCreated), _acls(access.AclsCreated))


@caught_by("acl-life")
def an_acl_deleted_that_does_not_exist(log: Log) -> Log:
    created = then(log, "CreateAcls", "r1", _acls(access.AclsCreated))
    return then(created, "DeleteAcls", "r1", *2 * (_acls(access.AclsDeleted),))


@caught_by("acl-life")
def no_acl_created(log: Log) -> Log:
    return then(log, "CreateAcls", "r1", access.AclsCreated(BY[0], (), *BY[1:]))


@caught_by("quota-life")
def a_quota_removed_that_does_not_exist(log: Log) -> Log:
    return then(log, "AlterClientQuotas", "r1", *map(_quota, (7.5, None, None)))


@caught_by("quota-life")
def a_quota_set_to_what_it_is(log: Log) -> Log:
    return then(log, "AlterClientQuotas", "r1", *map(_quota, (7.5, None, 7.5, 8.0, 8.0)))


@caught_by("quota-life")
def a_quota_of_nothing(log: Log) -> Log:
    return then(log, "AlterClientQuotas", "r1", _quota(0.0))


@caught_by("credential-life")
def a_credential_removed_that_does_not_exist(log: Log) -> Log:
    removed = access.ScramCredentialRemoved(BY[0], "bob", "SCRAM-SHA-256", *BY[1:])
    return then(log, "AlterUserScramCredentials", "r1", removed)


@caught_by("credential-life")
def a_second_login_secret(log: Log) -> Log:
    return then(log, "DrawLoginSecret", "r1", *2 * (access.LoginSecretDrawn(bytes(32)),))


@caught_by("refusals-counted")
def no_refusal_counted(log: Log) -> Log:
    refused = access.RequestsRefused("User:eve", None, "", "Metadata", "Describe", "Topic:a", 29, "authorizer", 0, 1)
    return then(log, "RecordRefusals", "r1", refused)


@caught_by("configs-of-resources")
def configs_of_a_topic_as_of_a_resource(log: Log) -> Log:
    return then(log, "AlterResourceConfigs", "r1", catalog.ResourceConfigsChanged(BY[0], 2, "a", (), *BY[1:]))


@caught_by("producer-ids-rise")
def producer_ids_allocated_twice(log: Log) -> Log:
    blocks = (catalog.ProducerIdsAllocated(BrokerId(1), 1, first, first + 1000) for first in (0, 1000, 1500))
    return then(log, "AllocateProducerIds", "r1", *blocks)


@caught_by("producer-ids-rise")
def no_producer_id_allocated(log: Log) -> Log:
    return then(log, "AllocateProducerIds", "r1", catalog.ProducerIdsAllocated(BrokerId(1), 1, 1000, 1000))
