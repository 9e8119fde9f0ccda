cd @FOLDER@
mkdir root
# The program is that of the image, which is built for the architecture of the node.
ctr --namespace k8s.io images mount --rw "$IMAGE" root >/dev/null
cp configuration root/links.json
@INTERFACES@mkfifo commands begin
exec 3<>commands 4<>begin
setpriv --no-new-privs --inh-caps=-all --bounding-set=@CAPABILITIES@ \
  chroot root /opt/k8sdds/k8sdds-link /links.json <commands >answers 2>messages &
link=$!
# Reads when the outages begin, in seconds since 1970, and sends each state of the link at its time. If the node learns
# of it after the first state is due, all are that much later.
{ read -r begin <&4 && exec env LC_ALL=C awk -v begin="$begin" '
  function now(time) { "date +%s.%N" | getline time; close("date +%s.%N"); return time + 0 }
  function wait(left) { if (left > 0) system(sprintf("sleep %.6f", left)) }
  NR == 1 && begin + $1 < now() { begin = now() - $1 }
  NF { wait(begin + $1 - now()); sub(/^[^ ]* /, ""); print; fflush() }
' schedule >commands; } &
until grep -q '^ready' messages; do kill -0 $link || { cat messages >&2; exit 1; }; sleep 0.05; done
@RULES@: >ready
wait $link || :
cat messages >&2
