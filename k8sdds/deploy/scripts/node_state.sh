PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH LC_ALL=C
print() { printf '%s\t%s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1 || { print missing_program "$1"; false; }; }
print links "$(ip -j -d link show)"
print routes "$(ip -j route show table all)"
print policy_rules "$(ip -j rule show)"
print policy_rules_ipv6 "$(ip -6 -j rule show 2>/dev/null)"
ip -o xfrm state 2>/dev/null | sed 's/^/xfrm_state\t/'
ip -o xfrm policy 2>/dev/null | sed 's/^/xfrm_policy\t/'
for variant in @VARIANTS@; do
  command -v $variant-save >/dev/null 2>&1 && $variant-save 2>/dev/null | sed "s/^/$variant\t/"
done
has nft && nft list tables 2>/dev/null | sed 's/^table /nft_table\t/'
has ipset && ipset list -n 2>/dev/null | sed 's/^/set\t/'
if has ss; then
  ss -Htln | awk '{ n = split($4, part, ":"); printf "listens\t%s\n", part[n] }' | sort -u
  ss -Htn state established | awk '{ printf "session\t%s %s\n", $3, $4 }'
fi
tc qdisc show 2>/dev/null | awk '$2 == "clsact" { print $5 }' | while read -r link; do
  for way in ingress egress; do
    tc filter show dev "$link" $way | sed -n "s/.* pref \([0-9]*\) bpf .* name \([^ ]*\).*/bpf\t$link $way \1 \2/p"
  done
done
for path in @FILES@; do [ ! -e "$path" ] || print file "$path"; done
:
