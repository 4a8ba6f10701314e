# shellcheck shell=bash
# Kube-OVN on OVN and Open vSwitch with the userspace datapath. The kernel has no Geneve module, so
# tunnels of OVN use a bridge of Open vSwitch: the node's interface becomes a port of a bridge with
# its name and address. With LB=false kube-proxy serves Services.
# shellcheck disable=SC2154 # node.sh of the lab sets PODS, SERVICES, NODE, MACHINE, ADDRESS, ROUTER, DIR, CNI_BIN and pki, LB is a setting
bin=$CNI_BIN
gateway=${PODS%.*.*}.0.1
central=${ADDRESS%.*}.11 # the first node of the cluster
sock=unix:/run/openvswitch/db.sock
mount -t overlay overlay -o "lowerdir=$bin:/usr/lib/cni" /usr/lib/cni
mkdir -p /run/openvswitch /run/ovn /etc/openvswitch /var/lib/ovn /var/lib/openvswitch /var/log/openvswitch /var/log/ovn /var/log/kube-ovn
[ -s /etc/openvswitch/system-id.conf ] || cat /proc/sys/kernel/random/uuid >/etc/openvswitch/system-id.conf
[ -e /etc/openvswitch/conf.db ] || ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter

# Disable segmentation and checksum offload: the userspace datapath does not support it.
plain() { ethtool -K "$1" tx off tso off gso off gro off >/dev/null 2>&1; }
nsenter --net="$DIR/../../net/internet" ethtool -K "$MACHINE" tx off tso off gso off >/dev/null

address=$(ip -4 -o address show eth0 | sed 's/.* inet \([0-9./]*\).*/\1/;q')
ip link set eth0 down
ip address flush dev eth0
ip link set eth0 name phy0
plain phy0
# The kernel also receives what the userspace datapath receives, and would reply to ARP requests for
# eth0 with the hardware address of phy0.
echo 1 >/proc/sys/net/ipv4/conf/phy0/arp_ignore
ip link set phy0 up

ovsdb-server /etc/openvswitch/conf.db --remote=p$sock --pidfile=/run/openvswitch/ovsdb-server.pid \
  --log-file=/var/log/openvswitch/ovsdb-server.log -vconsole:off --detach --no-chdir
ovs-vsctl --no-wait init
ovs-vsctl --no-wait set Open_vSwitch . external-ids:system-id="$(cat /etc/openvswitch/system-id.conf)" external-ids:hostname="$NODE" \
  external-ids:ovn-remote="tcp:$central:6642" external-ids:ovn-encap-type=geneve external-ids:ovn-encap-ip="${address%/*}" \
  external-ids:ovn-bridge-datapath-type=netdev external-ids:ovn-openflow-probe-interval=180
vswitchd() { ovs-vswitchd $sock --pidfile=/run/openvswitch/ovs-vswitchd.pid --log-file=/var/log/openvswitch/ovs-vswitchd.log -vconsole:off; }
keep vswitchd &
ovs-vsctl --may-exist add-br eth0 -- set bridge eth0 datapath_type=netdev fail-mode=standalone -- --may-exist add-port eth0 phy0
ovs-vsctl --may-exist add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure
until ip link set eth0 up 2>/dev/null; do sleep 0.1; done # after a restart the database has it, and the kernel not yet
ip address replace "$address" dev eth0
ip route replace default via "$ROUTER"

controller() { ovn-controller $sock --pidfile=/run/ovn/ovn-controller.pid --log-file=/var/log/ovn/ovn-controller.log -vconsole:off; }
keep controller &

db() { # nb|sb PORT SCHEMA: a database of OVN
  local file=/var/lib/ovn/ovn$1_db.db
  [ -e "$file" ] || ovsdb-tool create "$file" "$3"
  ovsdb-server "$file" --remote="punix:/run/ovn/ovn$1_db.sock" --remote="ptcp:$2:0.0.0.0" --unixctl="/run/ovn/ovn$1_db.ctl" \
    --pidfile="/run/ovn/ovn$1_db.pid" --log-file="/var/log/ovn/ovsdb-server-$1.log" -vconsole:off
}
northd() {
  ovn-northd --ovnnb-db=unix:/run/ovn/ovnnb_db.sock --ovnsb-db=unix:/run/ovn/ovnsb_db.sock \
    --pidfile=/run/ovn/ovn-northd.pid --log-file=/var/log/ovn/ovn-northd.log -vconsole:off
}
kubeovn-controller() {
  until kubectl --kubeconfig="$pki/admin" apply --server-side --force-conflicts -f "$bin/crds.yaml"; do sleep 1; done
  KUBECONFIG=$pki/admin POD_NAME=$NODE KUBE_NAMESPACE=kube-system POD_NAMESPACE=kube-system POD_IP=${address%/*} POD_IPS=${address%/*} KUBE_NODE_NAME=$NODE \
    command "$bin/kube-ovn-controller" --kubeconfig="$pki/admin" --ovn-nb-addr="tcp:[$central]:6641" --ovn-sb-addr="tcp:[$central]:6642" \
    --default-cidr="$PODS" --default-gateway="$gateway" --default-exclude-ips="$gateway" --node-switch-cidr=100.64.0.0/16 \
    --service-cluster-ip-range="$SERVICES" --enable-lb="$LB" --enable-np=true --logtostderr
}
kubeovn-daemon() {
  KUBECONFIG=$pki/admin KUBE_NODE_NAME=$NODE POD_IP=${address%/*} POD_IPS=${address%/*} command "$bin/kube-ovn-daemon" --kubeconfig="$pki/admin" --node-name="$NODE" \
    --ovs-socket=/run/openvswitch/db.sock --bind-socket=/run/openvswitch/kube-ovn-daemon.sock --iface=eth0 \
    --service-cluster-ip-range="$SERVICES" --network-type=geneve --encap-checksum=true --logtostderr
}
if [ "${address%/*}" = "$central" ]; then
  sbdb() { db sb 6642 "$bin/sb.ovsschema"; }
  nbdb() { db nb 6641 "$bin/nb.ovsschema"; }
  keep nbdb &
  keep sbdb &
  keep northd &
  keep kubeovn-controller &
fi
keep kubeovn-daemon &
cat >/run/cni/10-kube-ovn.conflist <<J
{"cniVersion": "0.3.1", "name": "kube-ovn", "plugins": [
  {"type": "kube-ovn", "server_socket": "/run/openvswitch/kube-ovn-daemon.sock"},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
