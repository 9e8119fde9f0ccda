config=$(ls @CONFIGURATIONS@/*.conflist @CONFIGURATIONS@/*.conf @CONFIGURATIONS@/*.json 2>/dev/null \
  | LC_ALL=C sort | head -n 1)
[ -n "$config" ] || exit 0
# Multus calls the plugins of two other files.
others=$(sed -nE 's/.*"clusterNetwork": *"([^"]+)".*/\1/p; s/.*"confDir": *"([^"]+)".*/\1\/attachment.conf/p' "$config")
plugins=$(cat "$config" $others 2>/dev/null | grep -oE '"type" *: *"[A-Za-z0-9_-]+"' | cut -d '"' -f 4)
if echo "$plugins" | grep -qx flannel; then plugins="$plugins bridge host-local"; fi
printf '%s\n' $plugins | sort -u | while read -r plugin; do
  [ -f "@FOLDER@/$plugin" ] && [ -x "@FOLDER@/$plugin" ] || continue
  sum=$(sha256sum "@FOLDER@/$plugin" | cut -d ' ' -f 1)
  version=$(env -u CNI_COMMAND timeout 5 "@FOLDER@/$plugin" </dev/null 2>&1 | head -n 1)
  echo "$plugin $sum $version"
done
