"""A trial of rules that never ends. If the rules have the word alarm, the system ends it, as after `LIMIT_S`."""

import os
import signal
import sys

if b"alarm" in sys.stdin.buffer.read():
    os.kill(os.getpid(), signal.SIGALRM)
signal.pause()
