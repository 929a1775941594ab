"""The word that the service is stopping, for those who wait for something over HTTP."""

from __future__ import annotations

import asyncio


class Stopping:
    """`event` is set when the service begins to stop: whoever waits answers, and ends."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
