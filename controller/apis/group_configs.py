"""The configs of a group (KIP-848, KIP-932, KIP-1071) as DescribeConfigs shows them: its own, else the brokers'."""

from __future__ import annotations

from controller.apis.broker_configs import in_force_of_all
from controller.apis.broker_table import BROKER_CONFIGS
from controller.apis.config_entries import described
from controller.controller_api import ControllerApi
from controller.kafka.messages.configs import DescribeConfigsResourceResult
from controller.machine.configs.groups import GROUP_CONFIGS, GROUPS, GroupConfig
from controller.machine.configs.values import ConfigType, canonical_text
from controller.machine.configs.views import ConfigEntry, ConfigSource, ConfigSynonym
from controller.machine.errors import ErrorCode, Rejection


def described_group(
    api: ControllerApi, name: str, keys: frozenset[str] | None, synonyms: bool, documentation: bool
) -> tuple[DescribeConfigsResourceResult, ...] | Rejection:
    """The configs of a group, of which nothing needs to be known; `keys` None means all."""
    if not name:
        return Rejection(ErrorCode.INVALID_REQUEST, "Group name must not be empty", "validation:group-configs")
    own = dict(api.cluster.configs_of(GROUPS, name))
    rows = (row for row in GROUP_CONFIGS.values() if not row.internal and (keys is None or row.name in keys))
    return tuple(described(_entry(api, row, own.get(row.name)), synonyms, documentation) for row in rows)


def _entry(api: ControllerApi, row: GroupConfig, own: str | None) -> ConfigEntry:
    if row.synonym is not None and row.synonym in BROKER_CONFIGS:
        entry = in_force_of_all(api, row.synonym)
        value, chain, doc = entry.value, entry.synonyms, entry.documentation
    else:
        value, doc = row.default, row.documentation
        chain = () if value is None else (ConfigSynonym(row.name, value, ConfigSource.DEFAULT_CONFIG),)
    if own is not None:
        value = canonical_text(row.name, row.kind, row.allowed, own)
        chain = (ConfigSynonym(row.name, value, ConfigSource.GROUP_CONFIG), *chain)
    source = chain[0].source if chain else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(row.name, value, source, ConfigType(row.kind), doc, chain)
