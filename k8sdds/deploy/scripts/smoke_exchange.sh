work=$(mktemp -d)
addresses=$(@ADDRESSES@)
set -- $addresses
first=$1
for pod in @PODS@; do
  shift
  echo $pod ${1:-$first}
done | xargs -n 2 -P @PARALLEL@ sh -c '
  @RUN@ exec $0 -- k8sdds-probe ask $1:@PORT@ --count 5 --timeout @TIMEOUT_S@ >'$work'/$0 2>&1 ||
    echo $0 cannot reach $1 >>'$work'/failed'
if [ -s $work/failed ]; then
  cat $work/smoke-* $work/failed >&2; rm -rf $work; exit 1
fi
cat $work/smoke-*
rm -rf $work
