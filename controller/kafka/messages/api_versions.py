"""ApiVersions (18): which versions of which APIs a listener speaks (KIP-35, KIP-511, KIP-584, KIP-1242)."""

from controller.kafka.messages.message import Message


class ApiVersionsRequest(Message, frozen=True, kw_only=True):
    """Which client this is, and which node it expects; nothing before v3."""

    client_software_name: str = ""  # v3+
    client_software_version: str = ""  # v3+
    cluster_id: str | None = None  # v5+
    node_id: int = -1  # v5+


class ApiVersion(Message, frozen=True, kw_only=True):
    """The range of versions of one API, both ends included."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class SupportedFeatureKey(Message, frozen=True, kw_only=True):
    """The levels of a feature that this node can work at."""

    name: str = ""  # v3+
    min_version: int = 0  # v3+
    max_version: int = 0  # v3+


class FinalizedFeatureKey(Message, frozen=True, kw_only=True):
    """The level of a feature that the cluster works at."""

    name: str = ""  # v3+
    max_version_level: int = 0  # v3+
    min_version_level: int = 0  # v3+


class ApiVersionsResponse(Message, frozen=True, kw_only=True):
    """What this listener speaks. `finalized_features_epoch` is -1 when unknown."""

    error_code: int = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: int = 0  # v1+
    supported_features: tuple[SupportedFeatureKey, ...] = ()  # v3+, tag 0
    finalized_features_epoch: int = -1  # v3+, tag 1
    finalized_features: tuple[FinalizedFeatureKey, ...] = ()  # v3+, tag 2
    zk_migration_ready: bool = False  # v3+, tag 3
