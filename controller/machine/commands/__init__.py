"""What the machine decides on: requests and observations."""
