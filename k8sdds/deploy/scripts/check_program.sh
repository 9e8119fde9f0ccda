work=$(mktemp -d)
ctr -n k8s.io images mount @IMAGE@ $work >/dev/null && found=$(find $work -name @PROGRAM@ | head -n 1)
ctr -n k8s.io images unmount --rm $work >/dev/null
rmdir $work
[ -n "$found" ] || { echo @IMAGE@ has no @PROGRAM@ >&2; exit 1; }
