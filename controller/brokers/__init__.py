"""Who carries decisions out: fleets of brokers, which learn committed events in order and report back with commands."""
