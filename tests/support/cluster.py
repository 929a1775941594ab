"""`make cluster`: the topology of docker-compose.yml as plain processes, for machines without Docker.

Three Kafka nodes (in one JVM, from the jars that `make tools` fetched), two workers, two gateways, a Spark master and a
Spark worker. The Kafka nodes are the target cluster: clients can produce to topics that they create at a gateway. (In
docker-compose.yml the brokers are simulated, because outside clients cannot reach its network.)
The data folder is temporary and is deleted after Ctrl-C.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from tests.support.processes import Process
from tests.support.reference_kafka import reference_kafka
from tests.support.stream import Stream, stream
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND

COMPOSE = ROOT / "docker-compose.yml"
SPARK_WITHIN_S = 300
SETTINGS = {"num.partitions": "3", "default.replication.factor": "3", "stream.replication.factor": "3"}


def write_spark_secret(folder: Path) -> Path:
    """Write the Spark secret, as the service `spark-secret` of docker-compose.yml does, unless the file exists."""
    shell, flags, script = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["spark-secret"]["entrypoint"]
    run = [shell, flags, script.replace("$$", "$")]
    subprocess.run(run, env={**os.environ, "SPARK_CONF_DIR": str(folder)}, check=True)
    return folder / "spark-defaults.conf"


@contextmanager
def spark(folder: Path) -> Iterator[str]:
    """A standalone master with one worker, for clients whose SPARK_CONF_DIR is the folder; yields its URL."""
    import pyspark

    home = Path(pyspark.__file__).parent
    spark_class, deploy = home / "bin" / "spark-class", "org.apache.spark.deploy"
    write_spark_secret(folder)
    env = {
        "SPARK_CONF_DIR": str(folder),
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder),
    }
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with Process([spark_class, f"{deploy}.master.Master", *ports], cwd=folder, env=env) as master:
        url = master.wait_for_line(r"Starting Spark master at (spark://\S+)", within_s=SPARK_WITHIN_S)[1]
        size = ["--cores", "2", "--memory", "1g", url]
        with Process([spark_class, f"{deploy}.worker.Worker", *ports, *size], cwd=folder, env=env) as worker:
            worker.wait_for_line("Successfully registered with master", within_s=SPARK_WITHIN_S)
            yield url


def main(kafka: str = "") -> int:
    """Run until interrupted. With the address of a running Kafka, start only workers and gateways."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    print("starting three Kafka nodes, two workers, two gateways and Spark; this takes a minute", flush=True)
    with tempfile.TemporaryDirectory(prefix="topicwright-cluster-") as made, ExitStack() as held:
        folder, spark_folder = Path(made), Path(made) / "spark"
        spark_folder.mkdir()
        nodes = () if kafka else held.enter_context(reference_kafka(folder / "kafka")).brokers.values()
        bootstrap = kafka or ",".join(nodes)
        running = held.enter_context(
            stream(folder, bootstrap, "topicwright", SETTINGS, workers=2, gateways=2, brokers="cluster")
        )
        master = "none" if kafka else held.enter_context(spark(spark_folder))
        print(_overview(running, master, spark_folder), flush=True)
        stopped.wait()
    return 0


def _overview(running: Stream, master: str, spark_conf: Path) -> str:
    one, other = running.gateways
    return f"""
Kafka clients   {one.kafka} and {other.kafka}
HTTP            {one.http} and {other.http}
the log         {running.kafka}, topic {running.names}.events
Spark           {master}, to whom SPARK_CONF_DIR={spark_conf} is known

  curl -s -X POST http://{one.http}/v1/topics -d '{{"name": "pay.orders", "num_partitions": 3}}'
  {COMMAND} topics pay.orders --http {other.http}

Ctrl-C ends it."""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
