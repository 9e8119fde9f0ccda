cat >/etc/systemd/system/@UNIT@ <<'END_OF_UNIT'
[Unit]
Description=Settings of the operating system by k8sdds deploy
After=network.target systemd-sysctl.service
Before=kubelet.service

[Service]
Type=oneshot
ExecStart=/bin/sh @FOLDER@/apply

[Install]
WantedBy=multi-user.target
END_OF_UNIT
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -sf ../@UNIT@ /etc/systemd/system/multi-user.target.wants/@UNIT@
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
