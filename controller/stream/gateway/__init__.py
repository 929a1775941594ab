"""Gateways: clients connect to them, and they forward commands to the workers."""
