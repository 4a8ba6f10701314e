# shellcheck shell=bash
# One bridge per node; the lab routes pod CIDRs between nodes. Packets to destinations outside of
# the pod CIDRs get the node's address, as with most CNIs.
# shellcheck disable=SC2154 # node.sh of the lab sets PODS and NODE_PODS
for pods in ${PODS//,/ }; do
  ip=$(family "$pods")
  nft -f - <<X
table $ip lab {
  chain outward {
    type nat hook postrouting priority srcnat; policy accept;
    $ip saddr $pods $ip daddr != $pods masquerade
  }
}
X
done
ranges="" routes=""
for pods in ${NODE_PODS//,/ }; do
  case $pods in *:*) everywhere=::/0 ;; *) everywhere=0.0.0.0/0 ;; esac
  ranges=$ranges${ranges:+, }'[{"subnet": "'$pods'"}]'
  routes=$routes${routes:+, }'{"dst": "'$everywhere'"}'
done
cat >/run/cni/10-lab.conflist <<X
{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni/addresses",
            "ranges": [$ranges], "routes": [$routes]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
X
