"""Commands that only read: topics, events, explanations, brokers, settings, requests, differences."""
