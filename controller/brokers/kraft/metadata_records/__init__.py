"""The records of Kafka's metadata log, as entity classes in kio's style, one for each version.

kio has Kafka's requests and responses and leaves these out; they are generated from the same schemas, which lie in
Kafka's jars (`python -m tests.support.generate_metadata_records`). `codec` reads and writes them.
"""
