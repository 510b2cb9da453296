"""`holdall run` in pipelines and beside redirections on a terminal, as `flock` would behave there."""
import os, sys, time

sys.path.insert(0, os.path.dirname(__file__))
from screen import Screen

holdall = os.environ["HOLDALL"]
# The screen shows what is typed, too: this is seen as one word only when it is said.
begun = 'echo be""gun >/dev/tty;'
log = os.environ["HOLDALL_AGENT"] + ".log"
screen = Screen()
# A command in a pipeline reads the terminal.
screen.type(f"{holdall} run tty -- sh -c '{begun} cat' | tee {log}\n")
screen.until("begun")
screen.type("hello\n")
screen.until("hello\r\nhello")
screen.type("\x04")
screen.until("ready> ")
# Two of them at once, and one whose output goes elsewhere.
two = f"sh -c '{begun} read x </dev/tty; echo \"got $x\"; cat'"
screen.type(f"{holdall} run one -- sleep 0.3 | {holdall} run two -- {two}\n")
screen.until("begun")
screen.type("first\n")
screen.until("got first")
screen.until("ready> ")
screen.type(f"{holdall} run tty -- sh -c '{begun} read x </dev/tty; echo \"read $x\"' >{log}; cat {log}\n")
screen.until("begun")
screen.type("typed\n")
screen.until("read typed")
screen.until("ready> ")
# Ctrl-Z stops the whole pipeline, fg goes on, Ctrl-C ends all of it.
screen.type(f"{holdall} run tty -- sh -c '{begun} cat' | tee {log}\n")
screen.until("begun")
screen.type("before\n")
screen.until("before\r\nbefore")
screen.type("\x1a")
screen.until("Stopped")
screen.until("ready> ")
screen.until_all_stopped()
screen.type("fg\n")
screen.until("| tee")
screen.type("after\n")
screen.until("after\r\nafter")
screen.type("\x03")
screen.until("ready> ")
# In the background it is stopped when it reads, and goes on in the foreground.
screen.type(f"{holdall} run tty -- sh -c 'read x; echo \"at last $x\"' &\n")
screen.until("ready> ")
screen.type("sleep 0.5; jobs\n")
screen.until("Stopped")
screen.until("ready> ")
screen.until_all_stopped()
screen.type("fg\n")
screen.until("at last")
screen.type("here\n")
screen.until("at last here")
screen.until("ready> ")
# A script stops when its command is interrupted.
script = f'{holdall} run tty -- sh -c "echo be\\"\\"gun; sleep 1000"; echo went""on'
screen.type(f"bash -c '{script}'\n")
screen.until("begun")
time.sleep(0.3)  # A shell that is about to start the next command may lose a signal.
screen.type("\x03")
screen.until("ready> ")
screen.type("echo status $?\n")
screen.until("status 130")
if "wenton" in screen.seen:
    sys.exit("the script went on after Ctrl-C")
screen.end()
print("pipeline: ok")
