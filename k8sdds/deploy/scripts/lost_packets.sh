ping -q -M do -c 1 -w @PING_S@ @ADDRESS@ >/dev/null 2>&1 || exit 0
# A path MTU may be learned again between the command and the ping, so one try does not suffice.
for try in 1 2; do
  @FORGET_PATH_MTUS@
  ping -q -M do -c 1 -w @PING_S@ -s @PAYLOAD@ @ADDRESS@ >/dev/null 2>&1 && exit
done
echo lost
