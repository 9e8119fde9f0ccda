export DEBIAN_FRONTEND=noninteractive
before=$(dpkg-query -Wf '${Package}\n' | sort)
@INSTALL@dpkg-query -Wf '${Package}\n' | sort >@STATE@/packages.now
echo "$before" | comm -13 - @STATE@/packages.now >>@STATE@/packages
rm @STATE@/packages.now
