say user "$(id -un)"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say hostname "$(uname -n)"
say userland "$(dpkg --print-architecture 2>/dev/null)"
say cpus "$(getconf _NPROCESSORS_ONLN)"
say init "$(cat /proc/1/comm)"
sed -n 's/^\(ID\|ID_LIKE\|VERSION_ID\|VERSION_CODENAME\|PRETTY_NAME\)=/os.\1\t/p' /etc/os-release | tr -d '"'
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  say cgroup 2; controllers=$(cat /sys/fs/cgroup/cgroup.controllers)
else say cgroup 1; controllers=$(awk '$4 == 1 { printf "%s ", $1 }' /proc/cgroups); fi
say controllers "$controllers"
for file in /boot/firmware/cmdline.txt /boot/cmdline.txt; do
  [ -f $file ] && { say boot_file $file; say boot_line "$(head -n 1 $file)"; break; }
done
say model "$(tr -d '\0' 2>/dev/null </proc/device-tree/model)"
awk '$1 == "MemTotal:" { print "memory_kib\t" $2 } $1 == "SwapTotal:" { print "swap_kib\t" $2 }' /proc/meminfo
# What enables swap: each device with its unit, services, and the generator of Raspberry Pi OS.
devices=$(awk 'NR > 1 { print $1 }' /proc/swaps 2>/dev/null)
if [ -n "$devices" ]; then
  for device in $devices; do
    say swap "$device $(systemd-escape --path --suffix=swap "$device" 2>/dev/null)"
  done
  for unit in dphys-swapfile zramswap zram-config; do
    systemctl is-enabled --quiet $unit.service 2>/dev/null && say swap_by $unit.service
  done
  [ -x /usr/lib/systemd/system-generators/rpi-swap-generator ] && say swap_by rpi-swap
fi
for folder in /var/lib /usr/local /etc; do
  say free_kib "$folder $(df -kP $folder | awk 'NR == 2 { print $4 }')"
done
has ss && ss -Htln | awk '{ n = split($4, p, ":"); printf "listens\t%s\n", p[n] }' | sort -u
has containerd && say containerd "$(containerd --version | awk '{ print $3 }')"
has systemctl && for unit in containerd kubelet; do
  say unit "$unit $(systemctl is-active $unit 2>/dev/null)"
done
# These programs are slow to start. From a bundle they are one file, which is run only once.
last=
for program in kubeadm kubelet kubectl; do
  file=$(readlink -f "$(command -v $program)") && [ -n "$file" ] || continue
  if [ "$file" != "$last" ]; then
    case $program in
      kubeadm) version=$(kubeadm version -o short 2>/dev/null) ;;
      kubelet) version=$(kubelet --version 2>/dev/null | awk '{ print $2 }') ;;
      kubectl) version=$(kubectl version --client 2>/dev/null | awk '/Client Version/ { print $3 }') ;;
    esac
    last=$file
  fi
  say program "$program $version"
done
[ -f /etc/k8sdds/cluster ] && say marker "$(head -n 1 /etc/k8sdds/cluster)"
for flag in initialised joined fixed; do [ -f /etc/k8sdds/$flag ] && say flag $flag; done
for file in /etc/kubernetes/*.conf /etc/kubernetes/manifests/*.yaml /etc/cni/net.d/* /var/lib/etcd/member; do
  [ -e "$file" ] && say leftover "$file"
done
file=/etc/kubernetes/kubelet.conf
[ -f $file ] && say server "$(sed -n 's/^ *server: //p' $file | head -n 1)"
for link in /sys/class/net/*; do say link "${link##*/}"; done
fixed=/proc/sys/net/netfilter/nf_conntrack_max
[ -e $fixed ] && [ ! -w $fixed ] && say conntrack fixed
say route "$(ip -4 route show default 2>/dev/null | head -n 1)"
route=$(ip -6 route show default 2>/dev/null | head -n 1)
say route_ipv6 "$route"
link=$(echo "$route" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
[ -n "$link" ] && say accept_ra "$(cat /proc/sys/net/ipv6/conf/$link/accept_ra 2>/dev/null)"
# Without addresses that change: those of privacy extensions, and those that are not valid for long.
for family in 4 6; do
  ip -$family -o addr show scope global 2>/dev/null | awk '
    !/ (temporary|deprecated|tentative|dadfailed) / { print "address\t" $2 " " $4 }'
done
file=/etc/k8sdds/kubeadm.yaml
[ -f $file ] && sed -n 's/^ *"podSubnet": "\([^"]*\)".*/pod_subnets\t\1/p
  s/^ *"mode": "\([^"]*\)".*/kube_proxy\t\1/p' $file 2>/dev/null
say cpu_manager "$(sed -n 's/^cpuManagerPolicy: *//p' /var/lib/kubelet/config.yaml 2>/dev/null)"
say capabilities "$(awk '/^CapBnd/ { print $2 }' /proc/1/status)"
if [ -d /proc/sys/net/bridge ] || modprobe -n br_netfilter 2>/dev/null; then say feature br_netfilter; fi
if grep -qw overlay /proc/filesystems || modprobe -n overlay 2>/dev/null; then say feature overlay; fi
[ -d /sys/module/ipip ] && ipip=loaded || ipip=
unshare --net sh -c '
  try() {
    if output=$(sh -c "$2" 2>&1); then printf "feature\t%s\n" "$1"
    else printf "lacks\t%s %s\n" "$1" "$(printf %s "$output" | tail -n 1 | tr "\t" " ")"; fi
  }
  try vxlan "ip link add vxlan9 type vxlan id 1 dstport 8472 dev lo"
  try ipip "ip link add ipip9 type ipip local 127.0.0.1 remote 127.0.0.2"
  try wireguard "ip link add wireguard9 type wireguard"
  try bridge "ip link add bridge9 type bridge"
  try bpf "mountpoint -q /sys/fs/bpf && tc qdisc add dev lo clsact"
  try macvlan "ip link add bridge8 type bridge && ip link add link bridge8 name macvlan9 type macvlan"
  try esp "ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 1 mode transport \
    aead \"rfc4106(gcm(aes))\" 0x0102030405060708090a0b0c0d0e0f1011121314 128"
  try nftables "nft add table ip probe"
  try dummy "ip link add dummy9 type dummy"
  # Before the first deploy, the programs may be missing. Then only modules can be looked up.
  if command -v ipset >/dev/null && command -v iptables-nft >/dev/null; then
    try ip_set "ipset create probe hash:ip"
    try xt_set "ipset -exist create probe hash:ip; iptables-nft -A INPUT -m set --match-set probe src"
  else
    try ip_set "modprobe -n ip_set"
    try xt_set "modprobe -n xt_set"
  fi
'
# This module creates the device tunl0 on the machine.
[ -n "$ipip" ] || modprobe -r ipip 2>/dev/null
if [ -e /proc/net/ip_vs ] || modprobe -n -a ip_vs ip_vs_rr 2>/dev/null; then say feature ipvs
else say lacks "ipvs no module ip_vs"; fi
if [ -d /sys/module/openvswitch ] || modprobe -n openvswitch 2>/dev/null; then say feature openvswitch
else say lacks "openvswitch no such module"; fi
# Names that the machine can resolve. IPv4 first: without DNS, a query for another address takes five seconds.
resolves() { getent ahostsv4 "$1" || getent hosts "$1"; }
for name in $NAMES; do resolves "$name" >/dev/null 2>&1 && say resolves "$name"; done
for key in $SYSCTLS; do say sysctl "$key $(sysctl -n "$key" 2>/dev/null | tr '\t' ' ')"; done
@FILE_HASHES@
# Images, only if the machine belongs to a cluster of k8sdds.
if [ -f /etc/k8sdds/cluster ] && has ctr; then
  ctr --namespace k8s.io images ls 2>/dev/null |
    awk 'NR > 1 && $1 ~ /:/ && $1 !~ /^sha256:/ { print "image\t" $1 " " $3 }'
fi
:
