config=/var/lib/kubelet/config.yaml
state=/var/lib/kubelet/cpu_manager_state
{ grep -Ev '^(cpuManagerPolicy|kubeReserved):' $config; printf '@SETTINGS@'; } >$config.new
systemctl stop kubelet
# The kubelet does not start with the state of another policy.
rm -f $state
mv $config.new $config
systemctl start kubelet
for second in $(seq 60); do grep -qs '"policyName":"@POLICY@"' $state && break; sleep 1; done
grep -q '"policyName":"@POLICY@"' $state
