keep @TARGET@; mkdir -p @FOLDER@
@FETCH@ @NEW@
[ "$(sha256sum <@NEW@ | cut -c1-64)" = @DIGEST@ ] || {
  rm -f @NEW@; echo @TARGET@ was damaged in transit >&2; exit 1; }
chmod @MODE@ @NEW@; mv -f @NEW@ @TARGET@
{ grep -v "^"@TARGET@" " @HASHES@ 2>/dev/null || :
  echo "$(stat -L --format '%n %i %s %.9Y %.9Z' @TARGET@) @DIGEST@"; } >@HASHES@.new
mv -f @HASHES@.new @HASHES@
