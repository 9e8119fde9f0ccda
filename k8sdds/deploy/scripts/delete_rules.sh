for family in ip ip6; do nft delete table $family kube-proxy 2>/dev/null || :; done
for variant in iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy; do
  command -v $variant-save >/dev/null || continue
  $variant-save 2>/dev/null | grep -q KUBE- || continue
  $variant-save 2>/dev/null | grep -v KUBE- | $variant-restore
done
# iptables creates its tables when a rule is first queried: delete those that are empty.
empty='^(table .*|chain (INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING) [{]|type .*; policy accept;|[}]|#.*|)$'
if command -v nft >/dev/null; then
  nft list tables | while read -r word family name; do
    case "$family $name" in
      "ip filter"|"ip nat"|"ip mangle"|"ip raw"|"ip6 filter"|"ip6 nat"|"ip6 mangle"|"ip6 raw") ;;
      *) continue ;;
    esac
    nft list table $family $name | tr -d '	' | grep -qvE "$empty" || nft delete table $family $name || :
  done
fi
