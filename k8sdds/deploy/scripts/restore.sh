if [ -f @IMAGES_BEFORE@ ] && ctr version >/dev/null 2>&1; then
  ctr --namespace k8s.io images ls -q | grep -vxF -f @IMAGES_BEFORE@ | while read -r image; do
    ctr --namespace k8s.io images rm $image >/dev/null 2>&1 || :
  done
fi
[ ! -f @STATE@/sysctls ] || while IFS=' =' read -r key value; do
  sysctl -qw "$key=$value" 2>/dev/null || :
done <@STATE@/sysctls
if [ -d @STATE@/saved ]; then cp -a @STATE@/saved/. /; fi
if [ -f @STATE@/made ]; then
  # In reverse order: the content of a folder before the folder.
  sort -r @STATE@/made | while read -r path; do
    if [ -d "$path" ] && [ ! -L "$path" ]; then rmdir "$path" 2>/dev/null || :; else rm -f "$path"; fi
  done
fi
systemctl daemon-reload
