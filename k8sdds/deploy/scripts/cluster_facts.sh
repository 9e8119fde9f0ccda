KUBECONFIG=/etc/kubernetes/admin.conf KUBECACHEDIR=@FOLDER@; export KUBECONFIG KUBECACHEDIR
if [ -f $KUBECONFIG ] && [ -f /etc/k8sdds/cluster ] && has kubectl; then
  each() { printf '{range .items[*]}%s{"\\t"}' "$1"; shift; printf '{%s} ' "$@"; printf '{"\\n"}{end}'; }
  # get NAME ARGUMENTS: run kubectl get. On a busy machine a working API server may time out or refuse a
  # connection once, so it is queried up to three times. Messages are kept only for failures.
  get() {
    name=$1; shift
    for try in 1 2 3; do
      if kubectl get --request-timeout=15s "$@" >$work/$name 2>$work/$name.error; then
        rm $work/$name.error; return
      fi
      if grep -q Forbidden $work/$name.error; then return; fi
      sleep 1
    done
  }
  counts='.status.numberReady}{.status.readyReplicas}/{.status.desiredNumberScheduled}{.spec.replicas'
  get objects @OBJECTS@ --all-namespaces --selector @SELECTOR@ \
    --output jsonpath="$(each kube.object '.kind}/{.metadata.namespace}/{.metadata.name' \
    '.metadata.annotations.k8sdds\.io/sha256' "$counts" '.metadata.labels.k8sdds\.io/network' \
    '.metadata.annotations.k8sdds\.io/proven')" &
  # Also one that others created, for a profile with a second network.
  get definitions customresourcedefinitions.apiextensions.k8s.io --field-selector metadata.name=@DEFINITION@ \
    --output jsonpath="$(each kube.definition .metadata.name '.metadata.labels.app\.kubernetes\.io/managed-by')" &
  get nodes nodes --output jsonpath="$(each kube.node .metadata.name \
    '.status.conditions[?(@.type=="Ready")].status' '.metadata.annotations.k8sdds\.io/labels' \
    .metadata.labels)$(each kube.taints .metadata.name \
    '.metadata.annotations.k8sdds\.io/taints' .spec.taints)"
  wait
  error=$(cat $work/*.error 2>/dev/null | tail -n 1)
  case $error in
    '') say kube.api ready ;;
    *Forbidden*) say kube.api forbidden ;;
    *) say kube.api "$error" ;;
  esac
  cat $work/nodes $work/objects $work/definitions
fi
:
