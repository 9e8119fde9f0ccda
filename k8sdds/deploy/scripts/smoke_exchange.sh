addresses=$(@ADDRESSES@)
work=$(mktemp -d)
set -- $addresses
first=$1
for pod in @PODS@; do
  shift
  ( @RUN@ exec $pod -- k8sdds-probe ask ${1:-$first}:@PORT@ --count 5 --timeout @TIMEOUT_S@ >$work/$pod 2>&1 ||
    echo $pod cannot reach ${1:-$first} >>$work/failed ) &
done
wait
if [ -s $work/failed ]; then
  cat $work/failed $work/smoke-* >&2; rm -rf $work; exit 1
fi
cat $work/smoke-*
rm -rf $work
