# shellcheck shell=bash
# Cilium's agent, beside kube-proxy or in its place. There is no operator: what it would do
# here, giving each node prefixes of the cluster's pool, is done below.
# IPAM=cluster-pool: node 1 has 10.7.65.0/24 and not the 10.7.1.0/24 of its Node object;
# kubernetes: the prefixes of the Node objects. ROUTING=tunnel, over VXLAN, or native: routes
# between nodes, which the agents make. MASQUERADE=iptables, or bpf, which needs that Cilium
# is in kube-proxy's place (kubelab up --proxy network). DEVICES: links that it has programs
# on; it finds them itself otherwise, Hawser's among them. MORE: further flags of the agent.
# shellcheck disable=SC2154 # PODS, NODE, MACHINE, CNI_BIN and pki are the node's; the others are settings
bin=$CNI_BIN
mount -t overlay overlay -o "lowerdir=$bin:/usr/lib/cni" /usr/lib/cni
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/cilium /var/lib/cilium
cp -r "$bin/bpf" /var/lib/cilium/
number=${MACHINE##*n}
# All of them are in the kernel itself.
for name in ip_tables iptable_nat iptable_mangle iptable_raw iptable_filter ip6_tables ip6table_mangle ip6table_raw ip6table_filter xt_socket vxlan; do
  echo "$name 0 0 - Live 0x0"
done >/run/modules
case $ROUTING in
tunnel) MORE="--tunnel-protocol=vxlan $MORE" ;;
native) MORE="--ipv4-native-routing-cidr=$PODS --auto-direct-node-routes=true $MORE" ;;
esac
# In BPF, packets would go past the host's netfilter and routes: docs/compatibility.md.
[ "$MASQUERADE" = iptables ] || MORE="--enable-bpf-masquerade=true --enable-host-legacy-routing=true $MORE"
[ -z "$DEVICES" ] || MORE="--devices=$DEVICES $MORE"
services=false groups=/run/cilium/cgroupv2
if [ "$PROXY" = network ]; then
  services=true
  # Its programs for sockets are to see those of this node alone.
  mkdir /run/unified
  mount -t cgroup2 cgroup2 /run/unified
  mkdir -p "/run/unified/$CGROUP" $groups
  echo $$ >"/run/unified/$CGROUP/cgroup.procs"
  mount --bind "/run/unified/$CGROUP" $groups
fi
agent() {
  # shellcheck disable=SC2086 # MORE is several flags
  until kubectl --kubeconfig="$pki/admin" apply --server-side --force-conflicts -f "$bin/crds" >/dev/null; do sleep 1; done
  K8S_NODE_NAME=$NODE command "$bin/cilium-agent" --k8s-kubeconfig-path="$pki/admin" --k8s-namespace=kube-system --cluster-name=default \
    --identity-allocation-mode=crd --ipam="$IPAM" --routing-mode="$ROUTING" --enable-ipv4=true --enable-ipv6=false \
    --kube-proxy-replacement=$services --enable-ipv4-masquerade=true --enable-l7-proxy=false --enable-hubble=false --enable-health-checking=false \
    --cgroup-root=$groups --cni-exclusive=false --write-cni-conf-when-ready=/run/cni/05-cilium.conflist --preallocate-bpf-maps=false $MORE
}
pool() { # what the operator does
  until kubectl --kubeconfig="$pki/admin" patch ciliumnode "$NODE" --type merge \
    -p '{"spec": {"ipam": {"podCIDRs": ["'"${PODS%.*.*}.$((number + 64)).0/24"'"]}}}' >/dev/null 2>&1; do sleep 0.5; done
}
keep agent &
[ "$IPAM" = kubernetes ] || pool &
