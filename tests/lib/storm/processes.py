"""Processes that are known by descriptors, so that no signal ever reaches a stranger with a number used again."""

import os
import select
import signal


class Process:
    """A process that lives, or did when this was made. One that was closed counts as dead."""

    def __init__(self, pid):
        self.pid = pid
        self.fd = os.pidfd_open(pid)

    def alive(self):
        if self.fd is None:
            return False
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return not poll.poll(0)

    def signal(self, number):
        """Whether it was there to be sent a signal."""
        if self.fd is None:
            return False
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            return False
        return True

    def close(self):
        os.close(self.fd)
        self.fd = None


def identified(pid, *words):
    """The process of that number, if these words are on its command line; else nothing."""
    try:
        process = Process(pid)
    except ProcessLookupError:
        return None
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            line = file.read().split("\0")
    except OSError:
        line = []
    # The descriptor is older than what was read: if it is alive, both are about the same process.
    if all(word in line for word in words) and process.alive():
        return process
    process.close()
    return None


def cgroups(data):
    """The paths of all cgroups that agents of a data directory have made: its device and inode are in their names."""
    found = os.stat(data)
    prefix = f"holdall-{found.st_dev:x}.{found.st_ino:x}-"
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file if " - cgroup2 " in line]
    return [os.path.join(at, name) for mount in mounts[:1] for at, names, _ in os.walk(mount)
            for name in names if name.startswith(prefix)]
