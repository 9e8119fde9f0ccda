if [ -e /sys/class/net/kube-ipvs0 ]; then
  # Only netlink removes virtual servers of IPVS, so kube-proxy does it while it runs.
  ctr --namespace k8s.io containers ls -q 'labels."io.kubernetes.container.name"==kube-proxy' | while read -r id; do
    ctr --namespace k8s.io tasks exec --exec-id k8sdds-cleanup $id kube-proxy --cleanup </dev/null >/dev/null 2>&1 || :
  done
fi
if command -v kubeadm >/dev/null; then kubeadm reset --force --cri-socket @CRI_SOCKET@ >/dev/null 2>&1 || :; fi
if systemctl cat kubelet >/dev/null 2>&1; then systemctl disable --now kubelet >/dev/null 2>&1; fi
if ctr version >/dev/null 2>&1; then
  all() { ctr --namespace k8s.io "$@"; }
  for id in $(all tasks ls -q); do all tasks kill -s KILL -a $id || :; done
  for second in 1 2 3 4 5; do [ -z "$(all tasks ls -q)" ] && break; sleep 1; done
  for id in $(all tasks ls -q); do all tasks rm -f $id >/dev/null || :; done
  for id in $(all containers ls -q); do all containers rm $id || :; done
fi
# The kubelet requested these cgroups of pods from systemd.
systemctl stop kubepods.slice 2>/dev/null || :
grep -o ' /var/lib/kubelet/[^ ]*' /proc/self/mountinfo | sort -ru | while read -r point; do
  umount $point || :
done
for folder in /etc/kubernetes /var/lib/kubelet /var/lib/etcd /etc/cni/net.d /var/lib/cni /var/log/pods \
  /var/log/containers; do
  [ ! -d $folder ] || find $folder -mindepth 1 -delete
  rmdir -p --ignore-fail-on-non-empty $folder 2>/dev/null || :
done
# Folders that the kubelet and containerd create if they are missing.
rmdir /run/netns 2>/dev/null || :
rmdir -p --ignore-fail-on-non-empty /usr/libexec/kubernetes/kubelet-plugins/volume/exec 2>/dev/null || :
rmdir --ignore-fail-on-non-empty /usr/lib/modules 2>/dev/null || :
rm -rf @CACHE_FOLDER@
