"""The settings of who may do what, and how much: authorization and quotas."""

from __future__ import annotations

from typing import Final

from controller.machine.configs.values import AtLeast, ConfigType, OneOf
from controller.settings.row import Setting

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ACCESS_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        "What decides who may do what: access control entries as in Kafka's StandardAuthorizer, under its name or in "
        "short; without one everybody may do everything.",
        OneOf(("", "StandardAuthorizer", STANDARD_AUTHORIZER)),
    ),
    Setting(
        "super.users",
        ConfigType.STRING,
        "",
        "Principals that may do everything, whatever an authorizer says.",
        form="TYPE:NAME, several separated by semicolons",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        "false",
        "Whether everybody may do everything to a resource that no access control entry is about.",
    ),
    Setting(
        "controller.quota.window.num",
        ConfigType.INT,
        "11",
        "How many windows of a mutation quota (KIP-599) may be used up at once.",
        AtLeast(1),
    ),
    Setting("controller.quota.window.size.seconds", ConfigType.INT, "1", "How long such a window is.", AtLeast(1)),
)
