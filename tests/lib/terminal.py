"""`holdall run` on a terminal: the live line, Ctrl-C while waiting, and job control."""
import os, sys

sys.path.insert(0, os.path.dirname(__file__))
from screen import Screen

holdall = os.environ["HOLDALL"]
screen = Screen()
type, until = screen.type, screen.until
# Ctrl-Z stops the command, the shell knows it, fg goes on, Ctrl-C ends it.
type(f"{holdall} run tty -- sh -c 'echo be\"\"gun; while read line; do echo \"got $line\"; done'\n")
until("begun")
type("hello\n")
until("got hello")
type("\x1a")
until("Stopped")
screen.until_all_stopped()
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
screen.end()
print("terminal: ok")
