"""Runs a command that may not call `clone3`, as in most containers and services: ENOSYS."""
import ctypes, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER, CLONE3, ENOSYS = 22, 38, 2, 435, 38


def instruction(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)


program = (
    instruction(0x20, 0, 0, 0)  # the number of the call
    + instruction(0x15, 0, 1, CLONE3)
    + instruction(0x06, 0, 0, 0x00050000 | ENOSYS)
    + instruction(0x06, 0, 0, 0x7FFF0000)  # allowed
)
buffer = ctypes.create_string_buffer(program, len(program))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


whole = Filter(4, ctypes.cast(buffer, ctypes.c_void_p))
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(whole)) == 0
os.execvp(sys.argv[1], sys.argv[1:])
