"""Messages about configs of topics, brokers, groups and the cluster."""

from controller.kafka.messages.message import Message, Outcome


class DescribeConfigsResource(Message, frozen=True, kw_only=True):
    """A resource to describe; `configuration_keys` is null for all configs."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: tuple[str, ...] | None = None


class DescribeConfigsRequest(Message, frozen=True, kw_only=True):
    """DescribeConfigs (32): values, their sources and synonyms (KIP-133, KIP-226), documentation from v3 (KIP-569)."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: bool = False  # v1+
    include_documentation: bool = False  # v3+


class DescribeConfigsSynonym(Message, frozen=True, kw_only=True):
    name: str = ""
    value: str | None = None
    source: int = 0


class DescribeConfigsResourceResult(Message, frozen=True, kw_only=True):
    """One config, also in CreateTopics from v5. `is_default` is what v0 has in place of `config_source`.

    `config_source`: 1 topic, 2 broker, 3 cluster-wide default, 4 broker file, 5 default, 6 logger. `config_type`:
    0 unknown, 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    """

    name: str = ""
    value: str | None = None
    read_only: bool = False
    is_default: bool = False  # v0
    config_source: int = -1  # v1+
    is_sensitive: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()  # v1+
    config_type: int = 0  # v3+
    documentation: str | None = None  # v3+


class DescribeConfigsResult(Outcome, frozen=True, kw_only=True):
    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Message, frozen=True, kw_only=True):
    results: tuple[DescribeConfigsResult, ...] = ()


class AlterableConfig(Message, frozen=True, kw_only=True):
    """One change; a null value resets the config. `config_operation`: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = ""
    config_operation: int = 0  # IncrementalAlterConfigs only
    value: str | None = None


class AlterConfigsResource(Message, frozen=True, kw_only=True):
    """A resource and its configs. `resource_type`: 2 topic, 4 broker."""

    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(Message, frozen=True, kw_only=True):
    """AlterConfigs (33): replaces all configs of a resource at once (KIP-133)."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: bool = False


class AlterConfigsResourceResponse(Outcome, frozen=True, kw_only=True):
    resource_type: int = 0
    resource_name: str = ""


class AlterConfigsResponse(Message, frozen=True, kw_only=True):
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


class IncrementalAlterConfigsRequest(AlterConfigsRequest, frozen=True, kw_only=True):
    """IncrementalAlterConfigs (44): changes one config at a time (KIP-339). Each config has an operation."""


IncrementalAlterConfigsResponse = AlterConfigsResponse
