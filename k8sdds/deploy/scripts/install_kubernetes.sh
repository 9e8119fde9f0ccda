[ -e /etc/ssl/certs/ca-certificates.crt ] || {
  apt-get update -q=2; apt-get install -q=2 -y --no-install-recommends ca-certificates; }
keep @KEY_FILE@; mkdir -p @KEY_FOLDER@
# apt's own HTTPS client: a fresh system may have no other.
/usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file @SOURCE@Release.key @KEY_FILE@.new >/dev/null
chmod 644 @KEY_FILE@.new; mv -f @KEY_FILE@.new @KEY_FILE@
@WRITE_SOURCE@apt-get update -q=2
apt-get install -q=2 -y --allow-change-held-packages @PACKAGES@
apt-mark hold @PROGRAMS@ >/dev/null
