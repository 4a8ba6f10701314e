# shellcheck shell=bash
# A bridge of each node's own; the lab leads prefixes of pods between the nodes. What leaves the
# cluster's pods has the node's address, as most networks of clusters do it.
# shellcheck disable=SC2154 # PODS and NODE_PODS are the node's
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
