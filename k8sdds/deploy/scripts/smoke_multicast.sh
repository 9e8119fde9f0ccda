# The pod's own answers could come before those of others.
output=$(@RUN@ exec @POD@ -- k8sdds-probe ask @GROUP@ --count 10 --no-loop --timeout @TIMEOUT_S@@INTERFACE@ || :)
echo "$output"
reached=
for address in $(awk 'NR > 1 { print $2 }' $work/addresses); do
  case $output in *"\"$address:"*) reached=yes ;; esac
done
[ "$reached" = yes ] || { echo "multicast does not reach another node" >&2; exit 1; }
