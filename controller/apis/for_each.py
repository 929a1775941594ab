"""One error for everything that a request names, in the answer of each API that changes things.

For requests beyond Kafka's bounds, and on a broker's listener, which sends them away with NOT_CONTROLLER (KIP-4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages import alter_client_quotas as quotas
from controller.kafka.messages import alter_configs as alter
from controller.kafka.messages import alter_user_scram_credentials as scram
from controller.kafka.messages import create_acls as acl_creation
from controller.kafka.messages import create_partitions as partitions
from controller.kafka.messages import create_topics as creation
from controller.kafka.messages import delete_acls as acl_deletion
from controller.kafka.messages import delete_topics as deletion
from controller.kafka.messages import incremental_alter_configs as incremental
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode


def created_topic(request: creation.CreateTopicsRequest, error: Detail) -> creation.CreateTopicsResponse:
    """The error for every topic."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return creation.CreateTopicsResponse(
        topics=tuple(
            creation.CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name in names
        )
    )


def deleted_topic(request: deletion.DeleteTopicsRequest, error: Detail) -> deletion.DeleteTopicsResponse:
    """The error for every topic."""
    wanted = request.topics or tuple(deletion.DeleteTopicState(name=name) for name in request.topic_names)
    return deletion.DeleteTopicsResponse(
        responses=tuple(
            deletion.DeletableTopicResult(
                name=one.name, topic_id=one.topic_id, error_code=error.code, error_message=error.message
            )
            for one in wanted
        )
    )


def grown_topic(request: partitions.CreatePartitionsRequest, error: Detail) -> partitions.CreatePartitionsResponse:
    """The error for every topic."""
    return partitions.CreatePartitionsResponse(
        results=tuple(
            partitions.CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        )
    )


def altered_resource(request: alter.AlterConfigsRequest, error: Detail) -> alter.AlterConfigsResponse:
    """The error for every resource."""
    return alter.AlterConfigsResponse(
        responses=tuple(
            alter.AlterConfigsResourceResponse(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                error_code=error.code,
                error_message=error.message,
            )
            for one in request.resources
        )
    )


def incrementally_altered_resource(
    request: incremental.IncrementalAlterConfigsRequest, error: Detail
) -> incremental.IncrementalAlterConfigsResponse:
    """The error for every resource."""
    return incremental.IncrementalAlterConfigsResponse(
        responses=tuple(
            incremental.AlterConfigsResourceResponse(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                error_code=error.code,
                error_message=error.message,
            )
            for one in request.resources
        )
    )


def created_acl(request: acl_creation.CreateAclsRequest, error: Detail) -> acl_creation.CreateAclsResponse:
    """The error for every entry."""
    return acl_creation.CreateAclsResponse(
        results=tuple(
            acl_creation.AclCreationResult(error_code=error.code, error_message=error.message)
            for _ in request.creations
        )
    )


def deleted_acl(request: acl_deletion.DeleteAclsRequest, error: Detail) -> acl_deletion.DeleteAclsResponse:
    """The error for every filter."""
    return acl_deletion.DeleteAclsResponse(
        filter_results=tuple(
            acl_deletion.DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
            for _ in request.filters
        )
    )


def altered_quota(request: quotas.AlterClientQuotasRequest, error: Detail) -> quotas.AlterClientQuotasResponse:
    """The error for every entity."""
    return quotas.AlterClientQuotasResponse(
        entries=tuple(
            quotas.AlteredEntryData(error_code=error.code, error_message=error.message, entity=entry.entity)
            for entry in request.entries
        )
    )


def altered_user(
    request: scram.AlterUserScramCredentialsRequest, error: Detail
) -> scram.AlterUserScramCredentialsResponse:
    """The error for every user."""
    users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return scram.AlterUserScramCredentialsResponse(
        results=tuple(
            scram.AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user in users
        )
    )


NOT_CONTROLLER: Final = Detail(int(ErrorCode.NOT_CONTROLLER), "This is not the correct controller for this cluster.")


def _sending_away(refuse: Callable[[Any, Detail], Message]) -> Handler:
    def answer(_: RequestContext, request: Any) -> Message:
        return refuse(request, NOT_CONTROLLER)

    return answer


SENT_AWAY: Final[Mapping[int, Handler]] = {
    ApiKey.CREATE_TOPICS: _sending_away(created_topic),
    ApiKey.DELETE_TOPICS: _sending_away(deleted_topic),
    ApiKey.CREATE_PARTITIONS: _sending_away(grown_topic),
    ApiKey.ALTER_CONFIGS: _sending_away(altered_resource),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _sending_away(incrementally_altered_resource),
    ApiKey.CREATE_ACLS: _sending_away(created_acl),
    ApiKey.DELETE_ACLS: _sending_away(deleted_acl),
    ApiKey.ALTER_CLIENT_QUOTAS: _sending_away(altered_quota),
}
"""What a broker's listener answers to requests that are for a controller."""
