if [ -s @STATE@/packages ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-mark unhold kubeadm kubelet kubectl >/dev/null 2>&1 || :
  sort -u @STATE@/packages | xargs apt-get purge -q=2 -y >/dev/null
fi
