"""IncrementalAlterConfigs (44): changes one config at a time (KIP-339)."""

from controller.kafka.messages.message import Message


class AlterableConfig(Message, frozen=True, kw_only=True):
    """One change. `config_operation`: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = ""
    config_operation: int = 0
    value: str | None = None


class AlterConfigsResource(Message, frozen=True, kw_only=True):
    """A resource and its configs. `resource_type`: 2 topic, 4 broker."""

    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[AlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(Message, frozen=True, kw_only=True):
    """Changes to make, each resource for itself."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: bool = False


class AlterConfigsResourceResponse(Message, frozen=True, kw_only=True):
    """The outcome for one resource."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(Message, frozen=True, kw_only=True):
    """One outcome a resource."""

    throttle_time_ms: int = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
