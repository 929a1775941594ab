"""Spark bootstraps only at Topicwright and reads a topic of the cluster behind it. The test runs in the group of tests
that starts Spark, with the Kafka of that group."""

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from tests.brokers.cluster.served import create, until
from tests.brokers.cluster.test_applications import send
from tests.support import tools
from tests.support.topicwright import Topicwright


def test_spark_reads_a_topic_in_batches_and_as_a_stream(cluster_server: Topicwright, spark: SparkSession) -> None:
    topic, address = "read-by-spark", cluster_server.kafka
    admin = AdminClient({"bootstrap.servers": address, "client.id": "admin"})
    assert create(admin, topic)[0] == 0
    send(address, topic, "one", "two")
    for jar in tools.spark_kafka_jars():
        spark.sql(f"ADD JAR '{jar}'")
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    batch = spark.read.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING)")
    assert sorted(row.value for row in batch.collect()) == ["one", "two"]
    growing = spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING)")
    query = growing.writeStream.format("memory").queryName("words").start()
    query.processAllAvailable()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    send(address, topic, "three")
    until(lambda: sorted(row.value for row in spark.table("words").collect()), lambda found: len(found) == 3)
    query.stop()
