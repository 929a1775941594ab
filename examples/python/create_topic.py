"""Create a topic, print the reason if it is refused, and print where its replicas are. Needs confluent-kafka.

python create_topic.py 127.0.0.1:9092 pay.orders
"""

import sys

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": bootstrap})
wanted = NewTopic(topic, num_partitions=3, replication_factor=3, config={"retention.ms": "86400000"})
try:
    admin.create_topics([wanted], operation_timeout=30)[topic].result()
    print(f"created {topic}")
except KafkaException as refused:
    error = refused.args[0]
    print(f"refused {topic}: {error.name()}: {error.str()}")
for partition in admin.list_topics(topic, timeout=30).topics[topic].partitions.values():
    print(f"partition {partition.id} leader {partition.leader} replicas {partition.replicas}")
