"""What tests share: processes, a raw wire client, the servers under test and the tools that run real clients."""
