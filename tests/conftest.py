"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts a job in the background lets it ignore Ctrl-C, and everything that the job starts; the tests of
# interruption send themselves one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
