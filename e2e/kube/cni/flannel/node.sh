# shellcheck shell=bash
# flanneld with the cluster's API. The module proxy lacks flannel's CNI plugin, so the
# configuration calls the plugins that it delegates to. BACKEND is vxlan or host-gw; NFTABLES is
# true or false.
# shellcheck disable=SC2154 # node.sh of the lab sets PODS, NODE, CNI_BIN and pki; the others are settings
four=false six=false networks=""
for pods in ${PODS//,/ }; do
  case $pods in
  *:*) six=true networks=$networks', "IPv6Network": "'$pods'"' ;;
  *) four=true networks=$networks', "Network": "'$pods'"' ;;
  esac
done
cat >/run/net-conf.json <<J
{"EnableIPv4": $four, "EnableIPv6": $six$networks, "EnableNFTables": $NFTABLES, "Backend": {"Type": "$BACKEND"}}
J
flanneld() {
  NODE_NAME=$NODE command "$CNI_BIN/flanneld" --kube-subnet-mgr --kubeconfig-file="$pki/admin" --ip-masq \
    --iface=eth0 --net-config-path=/run/net-conf.json --healthz-port=0
}
# Like flannel's plugin, read subnet.env and call bridge with host-local.
delegate() {
  local ranges="" routes="" subnet network
  until [ -s /run/flannel/subnet.env ]; do sleep 0.2; done
  # shellcheck disable=SC1091 # flanneld writes it
  . /run/flannel/subnet.env
  # The network address instead of its first host address.
  for subnet in ${FLANNEL_SUBNET:+"${FLANNEL_SUBNET/.1\//.0/}"} ${FLANNEL_IPV6_SUBNET:+"${FLANNEL_IPV6_SUBNET/::1\//::/}"}; do
    ranges=$ranges${ranges:+, }'[{"subnet": "'$subnet'"}]'
  done
  for network in ${FLANNEL_NETWORK:-} ${FLANNEL_IPV6_NETWORK:-}; do
    routes=$routes${routes:+, }'{"dst": "'$network'"}'
  done
  cat >/run/cni/.new <<J
{"cniVersion": "0.4.0", "name": "cbr0", "plugins": [
  {"type": "bridge", "bridge": "cni0", "mtu": $FLANNEL_MTU, "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "/run/cni/addresses", "ranges": [$ranges], "routes": [$routes]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
  mv /run/cni/.new /run/cni/10-flannel.conflist
}
keep flanneld &
delegate &
