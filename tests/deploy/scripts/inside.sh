# Mounts that disappear with the namespace. The system is the root of the mount namespace instead of a chroot, because
# the kernel refuses user namespaces to processes in a chroot, and the pods of the lab are such processes.
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
cd "$1"; shift
pivot_root . .
umount --lazy .
cd /
exec "$@"
