@APPLY_NAMESPACE@remove() { @RUN@ delete pod @PODS@ --ignore-not-found --now >/dev/null 2>&1 || :; }
remove
work=$(mktemp -d)
trap 'remove; rm -rf $work' EXIT
# The service account is created a moment after the namespace.
for second in $(seq 20); do
  @RUN@ get serviceaccount default >/dev/null 2>&1 && break
  sleep 0.3
done
@APPLY_PODS@@RUN@ wait pod @PODS@ --for=condition=Ready --timeout=@READY_S@s >/dev/null || {
  @RUN@ get pods -o wide >&2; @RUN@ describe pods | tail -n 30 >&2; exit 1
}
