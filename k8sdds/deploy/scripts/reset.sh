# Remove what an interrupted attempt or an earlier cluster left; the first attempt finds nothing. Folders may
# be mount points, so only their content is deleted.
if [ -n "$(find /etc/kubernetes /var/lib/etcd /var/lib/kubelet -mindepth 1 -print -quit 2>/dev/null)" ]; then
  kubeadm reset --force --cri-socket @CRI_SOCKET@ >/dev/null 2>&1 || :
  rm -f /etc/kubernetes/*.conf
  find /var/lib/etcd -mindepth 1 -delete 2>/dev/null || :
@PURGE@
fi
