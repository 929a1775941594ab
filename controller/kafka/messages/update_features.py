"""UpdateFeatures (57): finalized feature levels, metadata.version among them (KIP-584, KIP-778)."""

from controller.kafka.messages.message import Message


class FeatureUpdateKey(Message, frozen=True, kw_only=True):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(Message, frozen=True, kw_only=True):
    timeout_ms: int = 60000
    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: bool = False


class UpdatableFeatureResult(Message, frozen=True, kw_only=True):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = None


class UpdateFeaturesResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    results: tuple[UpdatableFeatureResult, ...] = ()
