for program in @PROGRAMS@; do
  command -v $program >/dev/null || { echo "$program is not installed" >&2; exit 1; }
done
@DEVICE_CHECK@[ -z "$(tc filter show dev "$DEVICE" ingress 2>/dev/null)" ] || {
  echo "another program handles the packets of $DEVICE first (tc filter show dev $DEVICE ingress)" >&2; exit 1
}
export DEVICE TCP_PORTS
# In a network namespace of its own: what is missing fails there.
problem=$(unshare --net sh -e 2>&1 >/dev/null <<'END_OF_CHECK'
ip link add name "$DEVICE" type veth peer name other
@INTERFACES@@RULES@
END_OF_CHECK
) || { echo "$problem" | head -n 1 >&2; exit 1; }
