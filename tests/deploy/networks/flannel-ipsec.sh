ip link add cni0 type bridge
for way in out in fwd; do
  ip xfrm policy add src 10.244.0.0/24 dst 10.244.1.0/24 dir $way     tmpl src 10.88.0.11 dst 10.88.0.12 proto esp reqid 11 mode tunnel
done
