# Only the folder, which has an index, is a source. apt's package lists of other sources do not change.
(
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
own=$(mktemp -d); trap 'rm -rf "$own"' EXIT
mkdir -p "$own/lists/partial" "$own/none"
echo 'deb [trusted=yes] file:@FOLDER@ ./' >"$own/bundle.list"
apt() {
  apt-get -q=2 -o Dir::Etc::SourceList="$own/bundle.list" -o Dir::Etc::SourceParts="$own/none" \
    -o Dir::State::Lists="$own/lists" -o APT::Sandbox::User=root "$@"
}
apt update
apt install --yes --no-install-recommends @PACKAGES@ </dev/null
)
