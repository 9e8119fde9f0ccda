export DEBIAN_FRONTEND=noninteractive
apt-get update -q=2
if ! dpkg-query -Wf '${Status}' @PACKAGE@ 2>/dev/null | grep -q 'ok installed'; then
  @COMMAND@
  mkdir -p @STATE@
  echo @PACKAGE@ >>@STATE@/packages
fi
