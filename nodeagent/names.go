package nodeagent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/kernel/host"
)

const dnsPort = 53

// dnsServer has names answered where the command line says, or else where the fabric does.
type dnsServer struct {
	config   Config
	log      *slog.Logger
	inputs   *input.Inputs
	host     *host.Host
	records  *dns.Store
	count    func(dns.Query)
	answered atomic.Bool
}

// run answers until ctx ends.
func (n *dnsServer) run(ctx context.Context) error {
	return dns.ServeDynamic(ctx, dns.Config{Store: n.records, Log: n.log, Count: n.count, Serving: n.answered.Store}, n.addrs)
}

// isDown reports whether there is an address at which names are to be answered, and are not.
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
	ipv6 := own != nil && own.Has(6) && !n.host.NoIPv6() // pods of this cluster may ask over it
	var out []netip.AddrPort
	for _, addr := range in.Fabric.DNS.Addresses() {
		if addr.Is4() || ipv6 {
			out = append(out, netip.AddrPortFrom(addr, dnsPort))
		}
	}
	return out
}
