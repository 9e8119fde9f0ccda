"""Send packets through k8sdds-link in a user namespace, and print the statistics. Run by test_forwarding.py."""

import json
import sys
from pathlib import Path

from link_tools import Wire, config

SEND = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(200):
    sender.sendto(bytes(100), ("10.9.0.2", 7))
"""

wire = Wire(Path(sys.argv[1]))
try:
    # The 200 datagrams, and the ICMP errors in the other direction.
    wire.start(config({"loss": {"pattern": "01"}, "delay": {"mean_us": 100}}))
    wire.ask("start")
    wire.sandbox.run([sys.executable, "-c", SEND], netns="a")
    print(json.dumps(wire.stop()))
finally:
    wire.close()
