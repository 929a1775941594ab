"""A voter of ours in the quorum of an unmodified Kafka controller: joins, leads, hands over, leaves."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from controller.apis.cluster import with_api_versions
from controller.brokers.cluster.security import Security
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.quorum.client import QuorumClient
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.folder import PARTITION, NodeFolder
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.raft.effects import Options, Role
from controller.brokers.kraft.quorum.raft.voters import Listener, Voter
from controller.kafka.handling import Answer, ApiHandler, RequestContext
from controller.kafka.messages import APIS, Message
from controller.kafka.messages.cluster import SupportedFeatureKey
from controller.kafka.server.server import KafkaServer
from tests.brokers.kraft.quorum.seats import SERVED
from tests.kafka.server.listener import until
from tests.support.kafka_controller import KafkaController
from tests.support.ports import free_ports
from tests.support.real_brokers import CLUSTER_ID, CONTROLLER

DIRECTORY = b"d" * 16
OURS = 77


class Ours:
    """Our voter, its log and its listener."""

    def __init__(self, folder: Path) -> None:
        self.folder = NodeFolder.open(folder, CLUSTER_ID, OURS, lambda: DIRECTORY)
        self.log = QuorumFiles(self.folder.partition)
        rows: dict[int, ApiHandler] = {
            key: ApiHandler(APIS[key].min_version, APIS[key].max_version, self._handle) for key in SERVED
        }
        feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        self.server = KafkaServer("127.0.0.1", 0, with_api_versions(rows, supported_features=(feature,)))

    async def _handle(self, context: RequestContext, request: Message) -> Answer:
        return await self.node.request(request)

    async def start(self, bootstrap: tuple[str, int]) -> None:
        await self.server.start()
        me = Voter(OURS, DIRECTORY, (Listener("CONTROLLER", "127.0.0.1", self.server.port),))
        options = Options(cluster_id=CLUSTER_ID, me=me, bootstrap=(bootstrap,))
        chance = random.Random(1).random
        self.node = QuorumNode(self.log, options, chance, lambda: int(time.time() * 1000), Security())
        self.node.start()

    async def stop(self) -> None:
        await self.node.stop()
        await self.server.stop(0.1)
        self.log.close()
        self.folder.close()


async def test_a_voter_joins_kafkas_quorum_leads_it_and_leaves_it(tmp_path: Path) -> None:
    """Of the oldest release whose voters can change; the other tests are of the newest."""
    (port,) = free_ports(1)
    kafka = KafkaController(tmp_path, port, "3.9.1", 1)
    kafka.format()
    ours = Ours(tmp_path / "ours")
    kafka.start()
    address = "127.0.0.1", port
    client = QuorumClient((address,), Security())
    await ours.start(address)
    quorum = ours.node.quorum
    quorum.want_leadership(0.0, wanted=False)
    try:
        async with asyncio.timeout(240):
            await until(lambda: quorum.high_watermark > 0)
            await client.add(CLUSTER_ID, quorum.me)
            await until(lambda: quorum.is_voter)

            quorum.want_leadership(0.0, wanted=True)
            await until(lambda: quorum.role is Role.LEADER and quorum.high_watermark == ours.log.end)
            for _ in range(10):
                await ours.node.committed(ours.node.append([(None, encode_record(kinds.NoOpRecord()))]))

            await ours.node.hand_over(60)
            await until(lambda: quorum.leader_id == CONTROLLER)
            shown = await client.describe()
            leaver = next(each for each in shown.current_voters if each.replica_id == OURS)
            await client.remove(CLUSTER_ID, shown, leaver)
            await until(lambda: not quorum.is_voter)
            end = ours.log.end
            await until(lambda: quorum.high_watermark >= end)
        assert kafka.process is not None
        assert kafka.process.popen.poll() is None, kafka.process.output
    finally:
        client.close()
        await ours.stop()
        kafka.kill()
    mine = (ours.folder.partition / f"{0:020d}.log").read_bytes()
    theirs = (kafka.metadata / PARTITION / f"{0:020d}.log").read_bytes()
    assert len(mine) > 1500
    assert theirs.startswith(mine), "byte for byte"
