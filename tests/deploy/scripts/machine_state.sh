# Print everything that a deploy may change on a machine, one line each, without logs, caches, the lock of iptables,
# and the bookkeeping of packages, systemd and logins.
export LC_ALL=C
find / -xdev \( -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /tmp \
  -o -path /var/lib/systemd -o -path /etc/ld.so.cache -o -path /root/.local -o -path /home \) -prune -o \
  -printf '%y %m %u %g %p %l\n' | sort
find / -xdev \( -path /var -o -path /usr/share -o -path /etc/ld.so.cache -o -path /tmp -o -path /home \) -prune -o \
  -type f -print0 | sort -z | xargs -0 sha256sum
for folder in /var/lib/kubelet /var/lib/etcd; do find $folder -mindepth 1; done
find /run -mindepth 1 -maxdepth 1 ! -name 'systemd*' ! -name xtables.lock ! -name motd.dynamic -printf 'run %P\n' | sort
cut -d ' ' -f 5 /proc/self/mountinfo | grep -v '^/run/user' | sort
ps -e -o comm= | grep -vE '^(sshd|sh|ps|sort|uniq|grep|sudo|kworker.*)$' | sort | uniq -c
systemctl list-unit-files --no-legend --no-pager | awk '{ print $1, $2 }' | sort
systemctl list-units --all --no-legend --no-pager --plain --type service,socket,timer,path,mount |
  awk '$3 == "active" || $3 == "failed" { print $1, $3 }' | grep -vE '^(ssh@|user@|session-|user-runtime)' | sort
ip -o link | sed 's/ qlen.*//'; ip -o addr | grep -v fe80; ip route show table all | grep -v fe80; ip rule; ip -6 rule
nft list ruleset; ipset list -n; ip -o xfrm state; ip -o xfrm policy
sysctl -a 2>/dev/null | grep -E '^net\.(core|ipv4|ipv6|bridge|netfilter)\.|^vm\.(over|panic)|^kernel\.(panic|keys)' |
  grep -vE 'nf_conntrack_count|nf_conntrack_buckets|tcp_mem|udp_mem|random'
dpkg-query -W -f '${Package} ${Status} ${Version}\n' | grep -v ' not-installed ' | sort
command -v ctr >/dev/null && ctr -n k8s.io images ls -q && ctr -n k8s.io containers ls -q
:
