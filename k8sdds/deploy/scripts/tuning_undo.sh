(
set -u
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ -d @FOLDER@ ] || exit 0
failed=0
restore() {
  what=$1; shift
  if output=$("$@" 2>&1); then echo "$what"; else echo "$what: $output" >&2; failed=1; fi
}
if [ -f @FOLDER@/former ]; then
  while read -r kind where name value; do
    case $kind in
      sysctl) restore "$where = $value" sysctl -qw "$where=$value" ;;
      mtu) set -- ip link set dev "$where" mtu "$value" ;;
      ring) set -- ethtool -G "$where" "$name" "$value" ;;
      offload) set -- ethtool -K "$where" "$name" "$value" ;;
    esac
    # Settings of a removed network card cannot be restored.
    [ "$kind" = sysctl ] || [ ! -e "/sys/class/net/$where" ] || restore "$where $kind $name $value" "$@"
  done <@FOLDER@/former
fi
[ $failed = 0 ] || exit 1
@BOOT@rm -rf @FOLDER@
)
