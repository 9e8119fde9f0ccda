rm -f /etc/systemd/system/@UNIT@ /etc/systemd/system/multi-user.target.wants/@UNIT@
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
