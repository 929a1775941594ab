"""Admin requests to a broker's listener: sent away with NOT_CONTROLLER (41) for every topic, as KIP-4 wants of a
broker."""

from __future__ import annotations

from controller.kafka.handling import RequestContext
from controller.kafka.messages import alter_client_quotas as quotas
from controller.kafka.messages import alter_configs as alter
from controller.kafka.messages import create_acls as acl_creation
from controller.kafka.messages import create_partitions as partitions
from controller.kafka.messages import create_topics as creation
from controller.kafka.messages import delete_acls as acl_deletion
from controller.kafka.messages import delete_topics as deletion
from controller.kafka.messages import incremental_alter_configs as incremental
from controller.machine.errors import ErrorCode

CODE = int(ErrorCode.NOT_CONTROLLER)
MESSAGE = "This is not the correct controller for this cluster."


def create_topics(_: RequestContext, request: creation.CreateTopicsRequest) -> creation.CreateTopicsResponse:
    """NOT_CONTROLLER for every topic."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return creation.CreateTopicsResponse(
        topics=tuple(creation.CreatableTopicResult(name=name, error_code=CODE, error_message=MESSAGE) for name in names)
    )


def delete_topics(_: RequestContext, request: deletion.DeleteTopicsRequest) -> deletion.DeleteTopicsResponse:
    """NOT_CONTROLLER for every topic."""
    wanted = request.topics or tuple(deletion.DeleteTopicState(name=name) for name in request.topic_names)
    return deletion.DeleteTopicsResponse(
        responses=tuple(
            deletion.DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=CODE, error_message=MESSAGE)
            for one in wanted
        )
    )


def create_partitions(
    _: RequestContext, request: partitions.CreatePartitionsRequest
) -> partitions.CreatePartitionsResponse:
    """NOT_CONTROLLER for every topic."""
    return partitions.CreatePartitionsResponse(
        results=tuple(
            partitions.CreatePartitionsTopicResult(name=topic.name, error_code=CODE, error_message=MESSAGE)
            for topic in request.topics
        )
    )


def alter_configs(_: RequestContext, request: alter.AlterConfigsRequest) -> alter.AlterConfigsResponse:
    """NOT_CONTROLLER for every resource."""
    return alter.AlterConfigsResponse(
        responses=tuple(
            alter.AlterConfigsResourceResponse(
                resource_type=one.resource_type, resource_name=one.resource_name, error_code=CODE, error_message=MESSAGE
            )
            for one in request.resources
        )
    )


def incremental_alter_configs(
    _: RequestContext, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """NOT_CONTROLLER for every resource."""
    return incremental.IncrementalAlterConfigsResponse(
        responses=tuple(
            incremental.AlterConfigsResourceResponse(
                resource_type=one.resource_type, resource_name=one.resource_name, error_code=CODE, error_message=MESSAGE
            )
            for one in request.resources
        )
    )


def create_acls(_: RequestContext, request: acl_creation.CreateAclsRequest) -> acl_creation.CreateAclsResponse:
    """NOT_CONTROLLER for every entry."""
    return acl_creation.CreateAclsResponse(
        results=tuple(acl_creation.AclCreationResult(error_code=CODE, error_message=MESSAGE) for _ in request.creations)
    )


def delete_acls(_: RequestContext, request: acl_deletion.DeleteAclsRequest) -> acl_deletion.DeleteAclsResponse:
    """NOT_CONTROLLER for every filter."""
    return acl_deletion.DeleteAclsResponse(
        filter_results=tuple(
            acl_deletion.DeleteAclsFilterResult(error_code=CODE, error_message=MESSAGE) for _ in request.filters
        )
    )


def alter_client_quotas(
    _: RequestContext, request: quotas.AlterClientQuotasRequest
) -> quotas.AlterClientQuotasResponse:
    """NOT_CONTROLLER for every entity."""
    return quotas.AlterClientQuotasResponse(
        entries=tuple(
            quotas.AlteredEntryData(error_code=CODE, error_message=MESSAGE, entity=entry.entity)
            for entry in request.entries
        )
    )
