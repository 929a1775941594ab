"""The machine past one process: commands and events in Kafka, workers that decide, fronts that answer."""
