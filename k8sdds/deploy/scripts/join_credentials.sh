# Print a kubeconfig with the cluster's certificate and a short-lived token. It travels over SSH, so the
# worker trusts no certificate that it received over the cluster network.
token=$(kubeadm token create --ttl @TOKEN_S@s 2>/dev/null)
cat <<END
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: https://@API_SERVER@
    certificate-authority-data: $(base64 -w 0 /etc/kubernetes/pki/ca.crt)
users:
- name: join
  user: {token: $token}
contexts:
- name: join
  context: {cluster: cluster, user: join}
current-context: join
END
