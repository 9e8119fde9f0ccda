PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH LC_ALL=C
running() { for comm in /proc/[0-9]*/comm; do [ "$(cat "$comm" 2>/dev/null)" = "$1" ] && return 0; done; return 1; }
if running chronyd && command -v chronyc >/dev/null 2>&1; then
  echo chrony; timeout 5 chronyc -n -c tracking 2>&1
elif running ptp4l && command -v pmc >/dev/null 2>&1; then
  echo ptp4l; timeout 5 pmc -u -b 0 'GET TIME_STATUS_NP' 'GET CURRENT_DATA_SET' 'GET PORT_PROPERTIES_NP' 2>&1
fi
true
