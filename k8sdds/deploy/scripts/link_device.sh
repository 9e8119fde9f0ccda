PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ -n "$DEVICE" ] || DEVICE=$({ ip -4 route show default; ip -6 route show default; } 2>/dev/null |
  sed -n '1s/.* dev \([^ ]*\).*/\1/p')
