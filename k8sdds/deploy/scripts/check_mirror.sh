check() (
  folder=$(mktemp -d -p /run); trap 'rm -rf "$folder"' EXIT
  mkdir "$folder/_default"; cp "$2" "$folder/_default/hosts.toml"
  # The last line has the reason of the first failure.
  reason=$(ctr images pull --hosts-dir "$folder" "$1/@PROBE_IMAGE@" 2>&1 | tail -n 1)
  case $reason in
    *@NO_SERVER@/*) exit 0 ;;
    *"401 Unauthorized"*|*"403 Forbidden"*|*"authorization failed"*|*insufficient_scope*)
      echo "the registry $1 rejects the login: see registry.login_file" ;;
    *x509*|*certificate*) echo "the certificate of the registry $1 is not trusted: see registry.ca_file" ;;
    *) echo "the registry $1 cannot be used" ;;
  esac >&2
  echo "$reason" >&2
  exit 1
)
