"""Tests of `controller.cli.ascode`."""
