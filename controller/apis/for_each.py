"""One error for everything that a request names, in the answer of each API that changes things.

For requests beyond Kafka's bounds, and on a broker's listener, which sends them away with NOT_CONTROLLER (KIP-4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import ApiKey, Message, access, configs, topics
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode


def created_topic(request: topics.CreateTopicsRequest, error: Detail) -> topics.CreateTopicsResponse:
    """The error for every topic."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return topics.CreateTopicsResponse(
        topics=tuple(
            topics.CreatableTopicResult(name=name, error_code=error.code, error_message=error.message) for name in names
        )
    )


def deleted_topic(request: topics.DeleteTopicsRequest, error: Detail) -> topics.DeleteTopicsResponse:
    """The error for every topic."""
    wanted = request.topics or tuple(topics.DeleteTopicState(name=name) for name in request.topic_names)
    return topics.DeleteTopicsResponse(
        responses=tuple(
            topics.DeletableTopicResult(
                name=one.name, topic_id=one.topic_id, error_code=error.code, error_message=error.message
            )
            for one in wanted
        )
    )


def grown_topic(request: topics.CreatePartitionsRequest, error: Detail) -> topics.CreatePartitionsResponse:
    """The error for every topic."""
    return topics.CreatePartitionsResponse(
        results=tuple(
            topics.CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        )
    )


def altered_resource(request: configs.AlterConfigsRequest, error: Detail) -> configs.AlterConfigsResponse:
    """The error for every resource."""
    return configs.AlterConfigsResponse(
        responses=tuple(
            configs.AlterConfigsResourceResponse(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                error_code=error.code,
                error_message=error.message,
            )
            for one in request.resources
        )
    )


def incrementally_altered_resource(
    request: configs.IncrementalAlterConfigsRequest, error: Detail
) -> configs.IncrementalAlterConfigsResponse:
    """The error for every resource."""
    return configs.IncrementalAlterConfigsResponse(
        responses=tuple(
            configs.AlterConfigsResourceResponse(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                error_code=error.code,
                error_message=error.message,
            )
            for one in request.resources
        )
    )


def created_acl(request: access.CreateAclsRequest, error: Detail) -> access.CreateAclsResponse:
    """The error for every entry."""
    return access.CreateAclsResponse(
        results=tuple(
            access.AclCreationResult(error_code=error.code, error_message=error.message) for _ in request.creations
        )
    )


def deleted_acl(request: access.DeleteAclsRequest, error: Detail) -> access.DeleteAclsResponse:
    """The error for every filter."""
    return access.DeleteAclsResponse(
        filter_results=tuple(
            access.DeleteAclsFilterResult(error_code=error.code, error_message=error.message) for _ in request.filters
        )
    )


def altered_quota(request: access.AlterClientQuotasRequest, error: Detail) -> access.AlterClientQuotasResponse:
    """The error for every entity."""
    return access.AlterClientQuotasResponse(
        entries=tuple(
            access.AlteredEntryData(error_code=error.code, error_message=error.message, entity=entry.entity)
            for entry in request.entries
        )
    )


def altered_user(
    request: access.AlterUserScramCredentialsRequest, error: Detail
) -> access.AlterUserScramCredentialsResponse:
    """The error for every user."""
    users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return access.AlterUserScramCredentialsResponse(
        results=tuple(
            access.AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
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
