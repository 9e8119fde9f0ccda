(
set +e
exec 8<@LOCK@
flock -w @LOCKED_S@ 8
systemctl stop @UNIT@ 2>/dev/null
(
@UNDO@)
ls -d @FOLDER@ /sys/class/net/k8sdds-near /sys/class/net/k8sdds-far 2>/dev/null
nft list table netdev k8sdds-link 2>/dev/null
:
)
