package schema

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/tags"
)

// TestPortTags compares the maximum of each base port with fabric.MaxPort.
func TestPortTags(t *testing.T) {
	t.Parallel()
	for _, v := range []any{Tunnel{}, TunnelOverride{}, Link{}, Gateway{}} {
		fields := tags.Fields(reflect.TypeOf(v))
		i := slices.IndexFunc(fields, func(f tags.Field) bool { return f.Name == "port" })
		if i < 0 {
			t.Errorf("%T has no port", v)
		} else if fields[i].Max != fabric.MaxPort {
			t.Errorf("%T: want %d, have %d", v, fabric.MaxPort, fields[i].Max)
		}
	}
	last := max(fabric.WireguardPort(fabric.MaxPort, 1, 0, true), fabric.VXLANPort(fabric.MaxPort, true), fabric.MaxPort+fabric.IPsecOffset)
	if last != 65535 {
		t.Errorf("last port: want 65535, have %d", last)
	}
}

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
