"""The settings of a voter among Kafka's controllers."""

from __future__ import annotations

from typing import Final

from controller.machine.configs.values import AtLeast, Between, ConfigType
from controller.settings.row import Setting

QUORUM_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "controller.quorum.voters",
        ConfigType.STRING,
        "",
        "With `join`, in a quorum of kraft.version 0: all its voters, this one among them, as all its nodes have it.",
        form="ID@HOST:PORT, several separated by commas",
    ),
    Setting(
        "quorum.priority",
        ConfigType.INT,
        "0",
        "Of a voter: above 0 it takes the lead of its quorum when it has caught up, from Kafka's controllers and from "
        "voters of Topicwright with a lower priority; with 0 only when nobody else leads.",
        Between(0, 1000),
    ),
    Setting(
        "controller.quorum.fetch.timeout.ms",
        ConfigType.INT,
        "2000",
        "Of a voter: how long nothing may come from the leader before another is looked for.",
        AtLeast(1000),
    ),
    Setting(
        "controller.quorum.election.timeout.ms",
        ConfigType.INT,
        "1000",
        "Of a voter: how long an election may take before the next one.",
        AtLeast(100),
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        ConfigType.LONG,
        str(20 << 20),
        "With --brokers kraft, and for a voter: after so many bytes of the metadata log a snapshot is made of it.",
        AtLeast(1),
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        ConfigType.LONG,
        "3600000",
        "With --brokers kraft, and for a voter: and after so long, if anything was committed since; 0 for any time.",
        AtLeast(0),
    ),
    Setting(
        "metadata.max.retention.bytes",
        ConfigType.LONG,
        str(100 << 20),
        "With --brokers kraft, and for a voter: how much of the metadata log and its snapshots is kept, for voters "
        "and brokers that were away. What comes after the older of two snapshots always is.",
        AtLeast(0),
    ),
)
