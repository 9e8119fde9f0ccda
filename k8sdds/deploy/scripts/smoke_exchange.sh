@ADDRESSES@ >$work/addresses
missing=
for pod in @PODS@; do
  grep -q "^$pod [^ ]" $work/addresses || missing="$missing $pod"
done
[ -z "$missing" ] || { echo "pods without an address:$missing" >&2; exit 1; }
awk 'NR == 1 { first = $2 } NR > 1 { print pod, $2 } { pod = $1 } END { print pod, first }' $work/addresses |
  xargs -n 2 -P @PARALLEL@ sh -c '
    @RUN@ exec $0 -- k8sdds-probe ask $1:@PORT@ --count 5 --timeout @TIMEOUT_S@ >'$work'/$0 2>&1 ||
      echo $0 cannot reach $1 >>'$work'/failed'
if [ -s $work/failed ]; then
  cat $work/smoke-* $work/failed >&2; exit 1
fi
cat $work/smoke-*
