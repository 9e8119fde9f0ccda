set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C KUBECONFIG=@KUBECONFIG@ KUBECACHEDIR=@CACHE_FOLDER@
# A script continues when the command that started it is killed: the next script waits for its end.
exec 9<@LOCK@
flock 9
# keep PATH: save the original of a path before it is changed, so that destroy can restore it.
keep() {
  grep -qxF "$1" @STATE@/made 2>/dev/null && return 0
  [ -e "@STATE@/saved$1" ] && return 0
  [ "$1" = / ] || [ -d "${1%/*}/" ] || keep "${1%/*}"
  if [ -d "$1" ] && [ ! -L "$1" ]; then return 0
  elif [ -e "$1" ] || [ -L "$1" ]; then mkdir -p "@STATE@/saved${1%/*}"; cp -a "$1" "@STATE@/saved$1"
  else mkdir -p @STATE@; echo "$1" >>@STATE@/made; fi
}
# put PATH MODE: write standard input to a file atomically.
put() {
  keep "$1"; mkdir -p "${1%/*}"
  ( umask 077; cat >"$1.k8sdds" ); chmod "$2" "$1.k8sdds"; mv -f "$1.k8sdds" "$1"
}
