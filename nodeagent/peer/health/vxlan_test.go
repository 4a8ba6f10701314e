package health

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"hawser.dev/hawser/internal/socket/nodepair"
	"hawser.dev/hawser/internal/trigger"
)

func TestMain(m *testing.M) { os.Exit(nodepair.Main(m, runNode)) }

// runNode runs a prober in the namespace of the process and prints its links when they change. The
// role is gateway or node, followed by the addresses of both nodes.
func runNode(role []string) error {
	kind, own, other := role[0], role[1], role[2]
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	config := Config{
		Cluster: "g1", Port: 4804, Wake: trigger.New(), Settings: Settings{Interval: 50 * time.Millisecond, Misses: 3},
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	}
	local := netip.MustParseAddr(own)
	if kind == "gateway" {
		return runGateway(ctx, config, local, netip.MustParseAddr(other))
	}
	p := New(config)
	p.SetTargets([]Target{{Peer: GatewayID{"g1", "gw"}, Source: local, Addr: netip.MustParseAddr(other), Device: "hw-vx0"}})
	done := make(chan error, 1)
	go func() { done <- newTransport(p).Run(ctx) }()
	for {
		select {
		case <-ctx.Done():
			return <-done
		case <-changed:
			s := p.Snapshot()
			fmt.Println(s.Links[0].State(), "b1", s.Rank("gw", GatewayID{"g2", "b1"}), "c1", s.Rank("gw", GatewayID{"g3", "c1"}))
		}
	}
}

// runGateway replies on hw-vx0, reaches g2/b1 (which runs here too) and not g3/c1.
func runGateway(ctx context.Context, config Config, local, node netip.Addr) error {
	remoteConfig := config
	remoteConfig.Wake = trigger.New()
	remoteConfig.Cluster, remoteConfig.Gateway = "g2", "b1"
	b := New(remoteConfig)
	b.SetListen([]Listen{{Addr: loopback(2)}})
	b.SetReady(true)
	config.Gateway = "gw"
	p := New(config)
	p.SetListen([]Listen{{Addr: local, Device: "hw-vx0"}})
	p.SetReady(true)
	p.SetNodes([][]netip.Addr{{node}})
	p.SetTargets([]Target{
		{Peer: GatewayID{"g2", "b1"}, Source: loopback(1), Addr: loopback(2)},
		{Peer: GatewayID{"g3", "c1"}, Source: loopback(1), Addr: loopback(3)},
	})
	done := make(chan error, 2)
	go func() { done <- newTransport(b).Run(ctx) }()
	go func() { done <- newTransport(p).Run(ctx) }()
	<-done
	return <-done
}

func TestOverVXLAN(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			p := nodepair.New(t)
			addr := p.IPv4
			if family == "IPv6" {
				addr = p.IPv6
				p.RouteIPv6(0)
				p.RouteIPv6(1)
			}
			p.Start(0, "gateway "+addr[0]+" "+addr[1])
			lines := p.Start(1, "node "+addr[1]+" "+addr[0])
			nodepair.Await(t, lines, "connected b1 good c1 down")
			p.IP(1, "link del hw-vx0")
			nodepair.Await(t, lines, "error b1 down c1 down")
			p.VXLAN(1)
			if family == "IPv6" {
				p.IP(1, "-6 route add default dev hw-vx0 table 7302")
			}
			nodepair.Await(t, lines, "connected b1 good c1 down")
		})
	}
}
