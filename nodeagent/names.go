package nodeagent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/kernel/host"
)

const dnsPort = 53

// dnsServer runs the DNS server at the configured address, or else at the fabric's address.
type dnsServer struct {
	config   Config
	log      *slog.Logger
	inputs   *input.Inputs
	host     *host.Host
	records  *dns.Store
	count    func(dns.Query)
	changed  trigger.Trigger // the fabric may have changed
	answered atomic.Bool
}

// run serves until ctx is done.
func (n *dnsServer) run(ctx context.Context) error {
	return dns.ServeDynamic(ctx, dns.Config{Store: n.records, Log: n.log, Count: n.count, Serving: n.answered.Store}, n.addrs, n.changed)
}

// isDown reports whether the DNS server should listen at an address but does not.
func (n *dnsServer) isDown() bool { return !n.answered.Load() && len(n.addrs()) > 0 }

func (n *dnsServer) addrs() []netip.AddrPort {
	if n.config.DNSListen.IsValid() {
		return []netip.AddrPort{n.config.DNSListen}
	}
	in, ok := n.inputs.Current()
	if !ok {
		return nil
	}
	own := in.Fabric.Cluster(n.config.Cluster)
	ipv6 := own != nil && own.Has(6) && !n.host.NoIPv6() // pods of this cluster may use IPv6
	var out []netip.AddrPort
	for _, addr := range in.Fabric.DNS.Addresses() {
		if addr.Is4() || ipv6 {
			out = append(out, netip.AddrPortFrom(addr, dnsPort))
		}
	}
	return out
}
