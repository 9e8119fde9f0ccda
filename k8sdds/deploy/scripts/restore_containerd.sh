if [ -f @STATE@/enabled ]; then systemctl disable --now containerd >/dev/null 2>&1
elif systemctl is-active containerd >/dev/null; then systemctl restart containerd; fi
