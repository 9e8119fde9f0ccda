{
set +e
nft delete table netdev k8sdds-link
ip link delete k8sdds-near
ip link delete k8sdds-far
# Without an answer of containerd, the next start removes the snapshot.
timeout 3 ctr --namespace k8s.io images unmount --rm @FOLDER@/root || umount -l @FOLDER@/root
rm -rf --one-file-system @FOLDER@
} >/dev/null 2>&1
:
