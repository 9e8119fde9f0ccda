# kubectl wait fails for a node that has not registered yet.
ready() {
  kubectl wait node @NODES@ --for=condition=Ready --timeout=60s >/dev/null 2>&1
}
end=$(($(date +%s) + @READY_S@))
until ready; do
  if [ $(date +%s) -ge $end ]; then
    kubectl get nodes >&2
    kubectl describe nodes | grep -E '^Name:|NotReady|not ready' >&2
    exit 1
  fi
  sleep 0.5
done
