# shellcheck shell=bash
# Cilium's agent, with or instead of kube-proxy, and without Cilium's operator: this script
# assigns the pod CIDRs of nodes.
# IPAM       cluster-pool: node 1 has 10.7.65.0/24, not the 10.7.1.0/24 of its Node object;
#            kubernetes: the pod CIDRs of Node objects
# ROUTING    tunnel (VXLAN), or native: Cilium's agents add routes between nodes
# MASQUERADE iptables, or bpf, which requires Cilium instead of kube-proxy (kubelab up --proxy network)
# DEVICES    interfaces with Cilium's programs; by default Cilium detects them, Hawser's included
# MORE       more flags of the agent
# shellcheck disable=SC2154 # node.sh of the lab sets PODS, NODE, MACHINE, CNI_BIN and pki; the others are settings
bin=$CNI_BIN
mount -t overlay overlay -o "lowerdir=$bin:/usr/lib/cni" /usr/lib/cni
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/cilium /var/lib/cilium
cp -r "$bin/bpf" /var/lib/cilium/
number=${MACHINE##*n}
# The kernel has all of them built in.
for name in ip_tables iptable_nat iptable_mangle iptable_raw iptable_filter ip6_tables ip6table_mangle ip6table_raw ip6table_filter xt_socket vxlan; do
  echo "$name 0 0 - Live 0x0"
done >/run/modules
case $ROUTING in
tunnel) MORE="--tunnel-protocol=vxlan $MORE" ;;
native) MORE="--ipv4-native-routing-cidr=$PODS --auto-direct-node-routes=true $MORE" ;;
esac
# Otherwise BPF bypasses the host's netfilter and routes: docs/compatibility.md.
[ "$MASQUERADE" = iptables ] || MORE="--enable-bpf-masquerade=true --enable-host-legacy-routing=true $MORE"
[ -z "$DEVICES" ] || MORE="--devices=$DEVICES $MORE"
services=false groups=/run/cilium/cgroupv2
if [ "$PROXY" = network ]; then
  services=true
  # Attach Cilium's socket programs to the cgroup of this node only.
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
