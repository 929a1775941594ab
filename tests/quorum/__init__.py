"""The quorum: its log, its peers."""
