# shellcheck shell=bash
# An imitation of Calico without encapsulation, with iptables. Node objects do not have the
# prefixes of pods, which the lab leads between the nodes; natOutgoing masquerades, and the
# chains of a pod's interface drop what connection tracking takes for invalid, as Felix
# writes them. RP_FILTER=1 is what Calico wants of a node.
# shellcheck disable=SC2154 # PODS and NODE_PODS are the node's, RP_FILTER is a setting
for link in all default eth0; do
  echo "$RP_FILTER" >/proc/sys/net/ipv4/conf/$link/rp_filter
done
cat >/run/cni/10-calico-like.conflist <<J
{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni/addresses", "ranges": [[{"subnet": "$NODE_PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
ipset create cali40masq-ipam-pools hash:net
ipset create cali40all-ipam-pools hash:net
ipset add cali40masq-ipam-pools "$PODS"
ipset add cali40all-ipam-pools "$PODS"
iptables-restore --noflush <<R
*nat
:cali-POSTROUTING - [0:0]
:cali-nat-outgoing - [0:0]
-I POSTROUTING -j cali-POSTROUTING
-A cali-POSTROUTING -j cali-nat-outgoing
-A cali-nat-outgoing -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE --random-fully
COMMIT
*filter
:cali-FORWARD - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-to-wl-dispatch - [0:0]
-I FORWARD -j cali-FORWARD
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-FORWARD -i cni0 -j cali-from-wl-dispatch
-A cali-FORWARD -o cni0 -j cali-to-wl-dispatch
-A cali-from-wl-dispatch -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-from-wl-dispatch -m conntrack --ctstate INVALID -j DROP
-A cali-from-wl-dispatch -j MARK --set-xmark 0x10000/0x10000
-A cali-to-wl-dispatch -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-to-wl-dispatch -m conntrack --ctstate INVALID -j DROP
-A cali-to-wl-dispatch -j MARK --set-xmark 0x10000/0x10000
COMMIT
R
