"""DescribeConfigs (32): values, their sources and synonyms (KIP-133, KIP-226), documentation from v3 (KIP-569)."""

from controller.kafka.messages.message import Message


class DescribeConfigsResource(Message, frozen=True, kw_only=True):
    """A resource to describe; `configuration_keys` null for all its configs."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: tuple[str, ...] | None = None


class DescribeConfigsRequest(Message, frozen=True, kw_only=True):
    """Resources to describe."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: bool = False  # v1+
    include_documentation: bool = False  # v3+


class DescribeConfigsSynonym(Message, frozen=True, kw_only=True):
    """A config or default that this value could come from, in order of precedence."""

    name: str = ""
    value: str | None = None
    source: int = 0


class DescribeConfigsResourceResult(Message, frozen=True, kw_only=True):
    """One config. `is_default` is what v0 has in place of `config_source`.

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


class DescribeConfigsResult(Message, frozen=True, kw_only=True):
    """All configs of one resource, or why not."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Message, frozen=True, kw_only=True):
    """One result a resource."""

    throttle_time_ms: int = 0
    results: tuple[DescribeConfigsResult, ...] = ()
