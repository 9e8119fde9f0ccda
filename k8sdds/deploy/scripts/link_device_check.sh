# These mistakes last, so that `link_check` must find them before the first trial.
[ -n "$DEVICE" ] || { echo "there is no default route: set network.interface in the profile" >&2; exit 1; }
case "$(ip -oneline link show dev "$DEVICE")" in
  *link/ether*) ;;
  *) echo "$DEVICE is not an Ethernet interface" >&2; exit 1 ;;
esac
for peer in $PEERS; do
  case "$(ip -oneline route get "$peer") " in
    *" dev $DEVICE "*) ;;
    *) echo "packets to $peer do not leave by $DEVICE: set network.interface in the profile" >&2; exit 1 ;;
  esac
done
