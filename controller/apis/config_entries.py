"""Configs in responses of CreateTopics and DescribeConfigs, encoded once for topics with the same configs."""

from __future__ import annotations

from functools import lru_cache

from controller.kafka.codec.codec import encode_array
from controller.kafka.messages import ApiKey, Encoded
from controller.kafka.messages.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from controller.machine.configs.views import ConfigEntry, described_configs, effective_configs
from controller.machine.state import Settings
from events.catalog import Configs


def creatable_configs(explicit: Configs, settings: Settings, version: int) -> Encoded:
    """All configs of a topic for CreateTopics, from version 5 (KIP-525)."""
    return _creatable(explicit, settings.topic_defaults, settings.dynamic_defaults, version)


@lru_cache(maxsize=256)
def _creatable(explicit: Configs, defaults: Configs, dynamic: Configs, version: int) -> Encoded:
    return encode_array(
        ApiKey.CREATE_TOPICS,
        version,
        [
            described(entry, synonyms=False, documentation=False)
            for entry in effective_configs(explicit, defaults, dynamic)
        ],
    )


def describable_configs(
    explicit: Configs, settings: Settings, keys: frozenset[str] | None, synonyms: bool, documentation: bool
) -> tuple[DescribeConfigsResourceResult, ...]:
    """The configs of a topic for DescribeConfigs; `keys` None means all."""
    return tuple(
        described(entry, synonyms, documentation)
        for entry in described_configs(explicit, settings.topic_defaults, settings.dynamic_defaults)
        if keys is None or entry.name in keys
    )


def described(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.is_default,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=one.name, value=one.value, source=int(one.source)) for one in entry.synonyms
        )
        if synonyms
        else (),
        config_type=int(entry.config_type),
        documentation=entry.documentation if documentation else None,
    )
