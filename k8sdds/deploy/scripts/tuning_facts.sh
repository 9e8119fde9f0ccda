(
for key in $KEYS $(awk '$1 == "sysctl" { print $2 }' $FOLDER/former 2>/dev/null); do
  path=/proc/sys/$(echo "$key" | tr . /)
  if [ ! -e "$path" ]; then state=none
  # On a local node, regular files replace the sysctls that belong to the whole kernel.
  elif [ "$(stat -f -c %T "$path")" != proc ]; then state=shadowed
  elif [ -w "$path" ]; then state=free; else state=fixed; fi
  printf 'tuning\tsysctl %s %s %s\n' "$key" $state "$(tr -s '\t' ' ' <"$path" 2>/dev/null)"
done
if [ -z "$DEVICE" ]; then
  DEVICE=$({ ip -4 route show default; ip -6 route show default; } 2>/dev/null |
    sed -n '1s/.* dev \([^ ]*\).*/\1/p')
fi
printf 'tuning\tdevice %s\n' "$DEVICE"
[ -z "$DEVICE" ] || ip -oneline address show dev "$DEVICE" scope global 2>/dev/null |
  awk '{ sub("/.*", "", $4); print "tuning\taddress " $4; exit }'
for device in $DEVICE $(awk '$1 != "sysctl" { print $2 }' $FOLDER/former 2>/dev/null | sort -u); do
  [ -e "/sys/class/net/$device" ] || continue
  printf 'tuning\tmtu %s - %s %s\n' "$device" "$(cat "/sys/class/net/$device/mtu")" \
    "$(ip -details -oneline link show dev "$device" | sed -n 's/.* maxmtu \([0-9]*\).*/\1/p')"
  if ! command -v ethtool >/dev/null 2>&1; then printf 'tuning\tethtool none\n'; break; fi
  ethtool -k "$device" 2>/dev/null | awk -v device="$device" '
    BEGIN { @OFFLOADS@ }
    $1 in names { print "tuning\toffload " device " " names[$1] " " $2 " " $3 }'
  ethtool -g "$device" 2>/dev/null | awk -v device="$device" '
    BEGIN { directions["RX:"] = "rx"; directions["TX:"] = "tx" }
    /maximums/ { part = "most" } /Current/ { part = "now" }
    $1 == "RX:" || $1 == "TX:" { value[part, $1] = $2 }
    END {
      for (way in directions)
        if (value["most", way] ~ /^[1-9]/)
          print "tuning\tring " device " " directions[way] " " value["now", way] " " value["most", way]
    }'
done
[ -f $FOLDER/former ] && sed 's/^/tuning\tformer /' $FOLDER/former
[ -f $FOLDER/apply ] && printf 'tuning\tapply %s\n' "$(sha256sum <$FOLDER/apply | cut -c1-64)"
:
)
