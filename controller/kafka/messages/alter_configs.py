"""AlterConfigs (33): replaces all configs of a resource at once (KIP-133)."""

from controller.kafka.messages.message import Message


class AlterableConfig(Message, frozen=True, kw_only=True):
    """One config to set; a null value is the default."""

    name: str = ""
    value: str | None = None


class AlterConfigsResource(Message, frozen=True, kw_only=True):
    """A resource and its configs. `resource_type`: 2 topic, 4 broker."""

    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(Message, frozen=True, kw_only=True):
    """Configs that replace those of each resource; ones not named go back to their defaults."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: bool = False


class AlterConfigsResourceResponse(Message, frozen=True, kw_only=True):
    """The outcome for one resource."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""


class AlterConfigsResponse(Message, frozen=True, kw_only=True):
    """One outcome a resource."""

    throttle_time_ms: int = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
