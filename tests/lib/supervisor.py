"""A stand-in for systemd: listens at SOCKET, hands it to the agent, waits until that is ready.

Usage: supervisor.py SOCKET COMMAND...; prints the agent's process number, again after each start;
starts it again when it is killed; ends when its input does.
"""

import os
import socket
import sys
import threading

path, command = sys.argv[1], sys.argv[2:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o600)
listener.listen(64)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(path + ".notify")
stopping = False
agent = 0


def start():
    pid = os.fork()
    if pid == 0:
        if listener.fileno() == 3:
            os.set_inheritable(3, True)
        else:
            os.dup2(listener.fileno(), 3)
        env = dict(os.environ, LISTEN_PID=str(os.getpid()), LISTEN_FDS="1",
                   NOTIFY_SOCKET=path + ".notify")
        os.execve(command[0], command, env)
    while b"READY=1" not in notify.recv(4096):
        pass
    return pid


def wait_for_end():
    global stopping
    sys.stdin.read()
    stopping = True
    os.kill(agent, 15)


while not stopping:
    agent = start()
    print(agent, flush=True)
    if threading.active_count() == 1:
        threading.Thread(target=wait_for_end, daemon=True).start()
    os.waitpid(agent, 0)
os.unlink(path + ".notify")
os.unlink(path)
