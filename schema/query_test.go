package schema

import (
	"testing"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

func TestTunnelOf(t *testing.T) {
	t.Parallel()
	set := &ClusterSet{}
	Default(set)
	off := fabric.Duration(0)
	own := &Cluster{Tunnel: TunnelOverride{Driver: "vxlan", Port: 4500, MTU: 1400, Keepalive: &off}}
	if got := set.GatewayPort(&Cluster{}, &Gateway{}); got != 51820 {
		t.Errorf("port of the set: want 51820, got %d", got)
	}
	if got := set.GatewayPort(own, &Gateway{}); got != 4500 {
		t.Errorf("port of the cluster: want 4500, got %d", got)
	}
	if got := set.GatewayPort(own, &Gateway{Port: 1}); got != 1 {
		t.Errorf("port of the gateway: want 1, got %d", got)
	}
	tunnel := set.TunnelOf(own)
	if tunnel.Driver != "vxlan" || tunnel.MTU != 1400 || time.Duration(*tunnel.Keepalive) != 0 || tunnel.CIDR != set.Spec.Tunnel.CIDR {
		t.Errorf("tunnel does not have the overrides of the cluster: %+v", tunnel)
	}
}
