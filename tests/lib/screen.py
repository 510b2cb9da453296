"""A shell with job control on a pseudo-terminal: we type, and read its screen."""
import os, pty, select, sys, time


class Screen:
    def __init__(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["PS1"] = "ready> "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.text = self.seen = ""
        self.until("ready> ")

    def until(self, text, seconds=10):
        """Reads until the text is there; what follows it is read next."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                sys.exit(f"no {text!r} on the screen:\n{self.seen}\n--\n{self.text}")
            self.text += os.read(self.terminal, 4096).decode(errors="replace")
        before, self.text = self.text.split(text, 1)
        self.seen += before + text

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def until_all_stopped(self, seconds=10):
        """Waits for all but the shell: it says "Stopped" when its own children are, and one of theirs that
        has yet to hear of it would read what is typed next."""
        deadline = time.monotonic() + seconds
        while any(state not in "TZ" for state in self.states()):
            if time.monotonic() > deadline:
                sys.exit(f"not everything has stopped:\n{self.seen}")
            time.sleep(0.01)

    def states(self):
        """Those of the processes of the session besides the shell."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
            except OSError:
                continue
            if int(stat[3]) == self.pid != int(pid):
                yield stat[0]

    def end(self):
        self.type("exit\n")
        os.waitpid(self.pid, 0)
