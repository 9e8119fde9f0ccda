(
set -eu
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
umask 022
mkdir -p @FOLDER@
keep() { cat >@FOLDER@/new; mv @FOLDER@/new "@FOLDER@/$1"; }
keep former <<'END_OF_FORMER'
@BEFORE@
END_OF_FORMER
keep apply <<'END_OF_APPLY'
@APPLY@END_OF_APPLY
@BOOT@@RESTORE@
sh -e @FOLDER@/apply
keep former <<'END_OF_FORMER'
@AFTER@
END_OF_FORMER
)
