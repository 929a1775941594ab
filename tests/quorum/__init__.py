"""Tests of the quorum: consensus, log, peers, and real Kafka controllers."""
