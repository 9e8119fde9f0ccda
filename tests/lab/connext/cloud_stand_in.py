"""Replace RTI Cloud Discovery Service in tests: send participants the list of registered participants.

Like RTI's service it reads its port from RECEIVE_PORT and does not start without a license.
"""

from __future__ import annotations

import os
import socket
import sys

from tests.lab.connext.stand_in import license_problem


def main() -> int:
    if "RTI_LICENSE_FILE" not in os.environ or (why := license_problem()):
        print(f"[Error] {why if 'RTI_LICENSE_FILE' in os.environ else 'no license'}", file=sys.stderr)
        return 1
    known: dict[str, dict[str, None]] = {}
    """Domain to the addresses that registered."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", int(os.environ["RECEIVE_PORT"])))
        while True:
            message, (address, port) = server.recvfrom(1024)
            word, _, domain = message.decode(errors="replace").partition(" ")
            if word == "here":
                known.setdefault(domain, {})[address] = None
            elif word == "who":
                server.sendto(" ".join(known.get(domain, {})).encode(), (address, port))


if __name__ == "__main__":
    sys.exit(main())
