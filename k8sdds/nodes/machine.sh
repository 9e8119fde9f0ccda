# Set up the file systems of a local node, then become its first process. The script already runs in the node's
# namespaces (network, mount, PID, UTS, IPC, cgroup), so its mounts are visible only in the node.
#
# Environment: NAME USER_NAME SUDO BOOT ROOTFS DIR DISK_MIB CGROUPS SHARES
set -eu
R=$DIR/root
mkdir -p "$R"
mount --make-rprivate /

# The node writes to the upper layer of an overlay; the root file system below is shared.
if [ "$DISK_MIB" != 0 ]; then
    mkdir -p "$DIR/disk"
    mount -t tmpfs -o "size=${DISK_MIB}m,mode=755" k8sdds "$DIR/disk"
fi
for folder in upper work containerd kubelet etcd; do mkdir -p "$DIR/disk/$folder"; done
mount -t overlay overlay -o "lowerdir=$ROOTFS,upperdir=$DIR/disk/upper,workdir=$DIR/disk/work" "$R"

mount -t proc proc "$R/proc"
mount -t sysfs sysfs "$R/sys"
# Programs and maps that a node pins there end with the node.
[ ! -d "$R/sys/fs/bpf" ] || mount -t bpf -o mode=700 bpf "$R/sys/fs/bpf"
mount -t tmpfs -o mode=755 tmpfs "$R/sys/fs/cgroup"
for hierarchy in $CGROUPS; do
    if [ "$hierarchy" = only-v2 ]; then
        umount "$R/sys/fs/cgroup"
        mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
    elif [ "$hierarchy" = unified ]; then
        mkdir "$R/sys/fs/cgroup/unified"
        mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup/unified"
    else
        folder=$R/sys/fs/cgroup/${hierarchy#name=}
        mkdir "$folder"
        case $hierarchy in name=*) options=none,$hierarchy ;; *) options=$hierarchy ;; esac
        mount -t cgroup -o "$options" cgroup "$folder"
        case $hierarchy in *,*) for controller in $(echo "$hierarchy" | tr , ' '); do ln -s "$hierarchy" "$R/sys/fs/cgroup/$controller"; done ;; esac
    fi
done

mount -t tmpfs -o mode=755 tmpfs "$R/dev"
for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "kmsg 1 11"; do
    # shellcheck disable=SC2086
    set -- $device
    mknod -m 666 "$R/dev/$1" c "$2" "$3"
done
mkdir "$R/dev/net" "$R/dev/pts" "$R/dev/shm" "$R/dev/mqueue"
mknod -m 666 "$R/dev/net/tun" c 10 200
ln -s /proc/self/fd "$R/dev/fd"
ln -s fd/0 "$R/dev/stdin"
ln -s fd/1 "$R/dev/stdout"
ln -s fd/2 "$R/dev/stderr"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
mount -t tmpfs tmpfs "$R/dev/shm"
mount -t mqueue mqueue "$R/dev/mqueue"
: >"$R/dev/console"
mount --bind "$DIR/console.log" "$R/dev/console"
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"

# containerd creates overlays, and the upper layer of an overlay cannot be on an overlay.
for folder in containerd kubelet etcd; do
    mkdir -p "$R/var/lib/$folder"
    mount --bind "$DIR/disk/$folder" "$R/var/lib/$folder"
done
echo "$SHARES" | while IFS='	' read -r host inside; do
    [ -n "$host" ] || continue
    mkdir -p "$R$inside"
    mount --bind "$host" "$R$inside"
    mount -o remount,bind,ro "$R$inside"
done

# These settings apply to the whole kernel. The node reads and writes private files instead.
mkdir -p "$R/run/k8sdds-sysctl"
for key in vm/overcommit_memory vm/panic_on_oom vm/max_map_count vm/swappiness kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes kernel/pid_max kernel/threads-max fs/file-max fs/nr_open \
    fs/inotify/max_user_instances fs/inotify/max_user_watches kernel/core_pattern kernel/sysrq kernel/printk \
    kernel/timer_migration kernel/unprivileged_bpf_disabled; do
    [ -e "$R/proc/sys/$key" ] || continue
    own=$R/run/k8sdds-sysctl/$(echo "$key" | tr / _)
    cat "$R/proc/sys/$key" >"$own"
    mount --bind "$own" "$R/proc/sys/$key"
done
[ ! -e "$R/proc/sysrq-trigger" ] || mount --bind /dev/null "$R/proc/sysrq-trigger"

hostname "$NAME"
echo "$NAME" >"$R/etc/hostname"
cp "$DIR/hosts" "$R/etc/hosts"
rm -f "$R/etc/resolv.conf"
# No DNS server is at this address, so requests fail at once. CoreDNS would report a loopback address as a loop.
echo 'nameserver 10.88.0.1' >"$R/etc/resolv.conf"
[ -s "$R/etc/machine-id" ] || tr -d - </proc/sys/kernel/random/uuid >"$R/etc/machine-id"
install -m 600 "$DIR/host_key" "$R/etc/ssh/ssh_host_ed25519_key"
install -d -m 700 "$R/root/.ssh"
install -m 600 "$DIR/authorized_keys" "$R/root/.ssh/authorized_keys"
if ! grep -q "^$USER_NAME:" "$R/etc/passwd"; then
    chroot "$R" useradd --create-home --shell /bin/bash "$USER_NAME"
    chroot "$R" install -d -m 700 -o "$USER_NAME" -g "$USER_NAME" "/home/$USER_NAME/.ssh"
    chroot "$R" install -m 600 -o "$USER_NAME" -g "$USER_NAME" /root/.ssh/authorized_keys "/home/$USER_NAME/.ssh/authorized_keys"
    [ "$SUDO" = no ] || { umask 227; echo "$USER_NAME ALL=(ALL) NOPASSWD: ALL" >"$R/etc/sudoers.d/k8sdds"; umask 22; }
fi

mkdir -p "$R/.old"
cd "$R"
pivot_root . .old
cd /
umount -l /.old
mount --make-rshared /
if [ "$BOOT" = sshd ]; then
    mkdir -p /run/sshd
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /usr/sbin/sshd -D -e
fi
exec env -i container=k8sdds PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    /lib/systemd/systemd --log-target=console --show-status=1
