"""`holdall run` on a terminal: the live line, Ctrl-C while waiting, and job control.

A shell with job control runs on a pseudo-terminal; we type, and read its screen.
"""
import os, pty, select, sys, time

holdall = os.environ["HOLDALL"]
pid, terminal = pty.fork()
if pid == 0:
    os.environ["PS1"] = "ready> "
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
screen = ""


def until(text, seconds=10):
    global screen
    deadline = time.monotonic() + seconds
    while text not in screen:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            sys.exit(f"no {text!r} on the screen:\n{screen}")
        screen += os.read(terminal, 4096).decode(errors="replace")
    screen = screen.split(text, 1)[1]


def type(keys):
    os.write(terminal, keys.encode())


until("ready> ")
# Ctrl-Z stops the command, the shell knows it, fg goes on, Ctrl-C ends it.
type(f"{holdall} run tty -- sh -c 'echo be\"\"gun; while read line; do echo \"got $line\"; done'\n")
until("begun")
type("hello\n")
until("got hello")
type("\x1a")
until("Stopped")
type(f"{holdall} status tty | grep -o 'held (sto[a-z]*)'\n")
until("held (stopped)")
# Somebody else waits: one live line says behind whom. Ctrl-C ends the wait.
type(f"{holdall} run tty free -- true\n")
until("waits for tty free: tty: held by")
type("\x03")
until("interrupted while waiting")
type("echo status $?\n")
until("status 130")
type("fg\n")
until("while read line")
type("again\n")
until("got again")
type("\x03")
until("ready> ")
type("echo status $?\n")
until("status 130")
type("exit\n")
os.waitpid(pid, 0)
print("terminal: ok")
