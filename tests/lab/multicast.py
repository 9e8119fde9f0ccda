"""Programs that send and receive one multicast datagram, for pods."""

GROUP = "239.255.7.7"

RECEIVER = f"""
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7777))
own = sys.argv[1]
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("{GROUP}") + socket.inet_aton(own))
s.settimeout(float(sys.argv[2]))
print("ready", flush=True)
try:
    print(s.recvfrom(64)[0].decode())
except TimeoutError:
    print("nothing")
"""
SENDER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 32)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
for _ in range(20):
    s.sendto(b"hello", ("{GROUP}", 7777))
"""
