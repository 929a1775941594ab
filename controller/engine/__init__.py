"""Group commit: decide, record, answer; replies, deadlines, reviews, policies."""
