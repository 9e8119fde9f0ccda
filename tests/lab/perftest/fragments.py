"""Print the fragment sizes in the RTPS messages on an interface.

Run it as a program in a network namespace: `python fragments.py INTERFACE` prints `ready` when it listens, and the sizes
when its standard input ends.
"""

import select
import socket
import struct
import sys

DATA_FRAG = 0x16


def sizes(message: bytes):
    """Yield (fragment size, sample size) of each DATA_FRAG at the start of an RTPS message."""
    at = 20
    while at + 4 <= len(message):
        order = "<" if message[at + 1] & 1 else ">"
        (length,) = struct.unpack_from(order + "H", message, at + 2)
        if message[at] == DATA_FRAG:
            # after flags, QoS offset, reader, writer, sequence number and first fragment: count, fragment and sample size
            yield struct.unpack_from(order + "HI", message, at + 4 + 2 + 2 + 4 + 4 + 8 + 4 + 2)
        if not length:
            return
        at += 4 + length


def main() -> None:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    link.bind((sys.argv[1], 0))
    print("ready", flush=True)
    pairs = set()
    while sys.stdin not in select.select([link, sys.stdin], [], [])[0]:
        ip = link.recv(65535)[14:]
        header = (ip[0] & 15) * 4
        first = not struct.unpack_from(">H", ip, 6)[0] & 0x1FFF
        if ip[9] == 17 and first and ip[header + 8 : header + 12] == b"RTPS":
            pairs.update(sizes(ip[header + 8 :]))
    for fragment, sample in sorted(pairs):
        print(fragment, sample)


main()
