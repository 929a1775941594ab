"""Parses a line of text into a request as policies see it, for tables with one case a row.

    TOPIC [by=PRINCIPAL] [partitions=N] [factor=N] [replicas=1,2/2,3] [CONFIG=VALUE]…

Defaults are 3 partitions and factor 3. `replicas` is a manual assignment, with slashes between partitions. `_` in a
config's value stands for a blank.
"""

import re

from controller.policy import RequestMetadata

_OWN = ("by", "partitions", "factor", "replicas")


def request(text: str) -> RequestMetadata:
    topic, *words = text.split()
    given = dict(word.split("=", 1) for word in words)
    principal = given.get("by", "User:ann")
    configs = {key: value.replace("_", " ") for key, value in given.items() if key not in _OWN}
    if "replicas" in given:
        replica_lists = given["replicas"].split("/")
        assignments = {
            partition: tuple(int(broker) for broker in replicas.split(","))
            for partition, replicas in enumerate(replica_lists)
        }
        return RequestMetadata(topic=topic, replicas_assignments=assignments, configs=configs, principal=principal)
    return RequestMetadata(
        topic=topic,
        num_partitions=int(given.get("partitions", 3)),
        replication_factor=int(given.get("factor", 3)),
        configs=configs,
        principal=principal,
    )


def rows(table: str) -> list[tuple[str, ...]]:
    """The rows of a table, columns between bars; # begins a heading."""
    lines = (line.strip() for line in table.splitlines())
    return [
        tuple(column.strip() for column in re.split(r"\s\|(?:\s|$)", line))
        for line in lines
        if line and not line.startswith("#")
    ]
