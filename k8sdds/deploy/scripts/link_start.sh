cd @FOLDER@ || exit 1
# The pipes are opened for both ways, because a pipe without a reader would block a script.
before=$(wc -l <answers)
echo start 1<>commands
until [ "$(wc -l <answers)" -gt "$before" ]; do [ -e ready ] || exit 1; sleep 0.01; done
tail -n 1 answers
date +%s%N
