"""Damages the newest segment of a log that has records, as disks and crashes do (docs/log.md has the format).

usage: segment.py DATA cut | last | middle

cut      the last record was not written to its end
last     a byte of the last record is wrong
middle   a byte of the first of several records is wrong

Prints the file and the byte.
"""
import os, struct, sys

HEADER, RECORD = 128, 32


def records(content):
    """Where each record is, and how long its payload."""
    at, found = HEADER, []
    while at + RECORD < len(content) and content[at + RECORD - 1]:
        length = struct.unpack_from("<I", content, at + 16)[0]
        found.append((at, length))
        at += (RECORD + length) // 8 * 8 + 8
    return found


data, how = sys.argv[1:]
for name in sorted((name for name in os.listdir(data) if name.startswith("segment-") and "." not in name), reverse=True):
    path = os.path.join(data, name)
    with open(path, "r+b") as file:
        content = file.read()
        found = records(content)
        if len(found) < (2 if how == "middle" else 1):
            continue
        at, length = found[0 if how == "middle" else -1]
        where = at + RECORD + length // 2
        file.seek(where)
        if how == "cut":
            file.write(bytes(len(content) - where))
        else:
            file.write(bytes([content[where] ^ 0x10]))
        print(path, where)
        break
else:
    sys.exit("segment.py: there is no record to damage")
