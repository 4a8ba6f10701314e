# shellcheck shell=bash
# Imitates Calico without encapsulation, with iptables. The lab routes pod CIDRs between nodes, and
# Node objects do not have them. As with Felix, natOutgoing masquerades, and the chains of pod
# interfaces drop packets with conntrack state INVALID. Calico requires RP_FILTER=1.
# shellcheck disable=SC2154 # node.sh of the lab sets PODS and NODE_PODS, RP_FILTER is a setting
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
