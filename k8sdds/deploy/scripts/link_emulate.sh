set -e
exec 8<@LOCK@
flock -w @LOCKED_S@ 8 || { echo "another script emulates this link" >&2; exit 1; }
since=$(date +%s)
systemctl stop @UNIT@ 2>/dev/null || :
(
@UNDO@)
mkdir -m 700 @FOLDER@
cd @FOLDER@
cat >configuration <<'END_OF_CONFIGURATION'
@CONFIGURATION@
END_OF_CONFIGURATION
cat >schedule <<'END_OF_SCHEDULE'
@SCHEDULE@
END_OF_SCHEDULE
cat >undo <<'END_OF_UNDO'
@UNDO@
END_OF_UNDO
cat >run <<'END_OF_RUN'
{
@PROLOGUE@@RUN@
}
END_OF_RUN
@PROLOGUE@@DEVICE_CHECK@systemd-run --quiet --collect --unit=@UNIT@ --property=TimeoutStopSec=15 --property=Nice=-20 \
  --property="RuntimeMaxSec=$AT_MOST_S" \
  --property="ExecStopPost=/bin/sh @FOLDER@/undo" /bin/sh -e @FOLDER@/run
until [ -e ready ]; do
  systemctl --quiet is-active @UNIT@ || {
    journalctl --quiet --unit=@UNIT@ --since="@$since" --output=cat --lines=20 | grep -v systemd >&2
    exit 1
  }
  sleep 0.05
done
