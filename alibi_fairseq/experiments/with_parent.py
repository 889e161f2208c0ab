"""``python with_parent.py PID COMMAND …``: become a command that gets SIGTERM when its parent ends.

Without it a training outlives a killed ``compare`` and writes where the same command trains again. Run by
its path, so that nothing is imported twice; the command replaces it in the same process.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # SIGUSR1, blocked until here, must not end a command that does not handle it yet.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(128 + signal.SIGTERM)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
