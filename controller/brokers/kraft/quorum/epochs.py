"""At which offset each epoch of the log began (Kafka's `LeaderEpochFileCache`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Epochs:
    """The epochs of what is in the log, in order."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def last(self) -> int | None:
        """The newest; None where the log is empty."""
        return self._epochs[-1] if self._epochs else None

    @property
    def first(self) -> int:
        """The oldest, of a log that is not empty."""
        return self._epochs[0]

    def note(self, epoch: int, offset: int) -> None:
        """A batch of this epoch begins at this offset."""
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(offset)

    def start_of(self, epoch: int) -> int | None:
        """Where the log has the first batch of an epoch; None where it has none."""
        at = bisect_left(self._epochs, epoch)
        return self._starts[at] if at < len(self._epochs) and self._epochs[at] == epoch else None

    def floor(self, epoch: int) -> tuple[int, int] | None:
        """The newest epoch up to `epoch`, and where the one after it began; None where no newer epoch is known. Before
        the first, it is `epoch` itself."""
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return None
        return self._epochs[above - 1] if above else epoch, self._starts[above]

    def cut(self, end: int) -> None:
        """The log ends at `end` now."""
        kept = bisect_left(self._starts, end)
        del self._epochs[kept:], self._starts[kept:]

    def begin(self, start: int) -> None:
        """The log begins at `start` now."""
        gone = max(bisect_right(self._starts, start) - 1, 0)
        del self._epochs[:gone], self._starts[:gone]
        if self._starts:
            self._starts[0] = max(self._starts[0], start)
