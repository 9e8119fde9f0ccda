"""Prints the fragment sizes that RTPS messages on an interface name, until its input ends.

Run as a program in a network namespace: `python fragments.py INTERFACE` says `ready` when it listens.
"""

import select
import socket
import struct
import sys

DATA_FRAG = 0x16


def sizes(message: bytes):
    """(fragment size, sample size) of each DATA_FRAG in the beginning of an RTPS message."""
    at = 20
    while at + 4 <= len(message):
        order = "<" if message[at + 1] & 1 else ">"
        (length,) = struct.unpack_from(order + "H", message, at + 2)
        if message[at] == DATA_FRAG:
            # flags, offset of QoS, reader, writer, number, first fragment; then how many, how long, of what
            yield struct.unpack_from(order + "HI", message, at + 4 + 2 + 2 + 4 + 4 + 8 + 4 + 2)
        if not length:
            return
        at += 4 + length


def main() -> None:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    link.bind((sys.argv[1], 0))
    print("ready", flush=True)
    found = set()
    while sys.stdin not in select.select([link, sys.stdin], [], [])[0]:
        ip = link.recv(65535)[14:]
        header = (ip[0] & 15) * 4
        first = not struct.unpack_from(">H", ip, 6)[0] & 0x1FFF
        if ip[9] == 17 and first and ip[header + 8 : header + 12] == b"RTPS":
            found.update(sizes(ip[header + 8 :]))
    for fragment, sample in sorted(found):
        print(fragment, sample)


main()
