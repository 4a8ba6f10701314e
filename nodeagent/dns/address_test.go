package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"hawser.dev/hawser/internal/socket/nodepair"
)

func TestMain(m *testing.M) { os.Exit(nodepair.Main(m, beServer)) }

// beServer serves DNS at an address, and prints when the address starts or stops replying.
func beServer(role []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	store := NewStore()
	done := make(chan error, 1)
	config := Config{Addr: netip.MustParseAddrPort(role[0]), Store: store, Log: slog.New(slog.DiscardHandler)}
	go func() { done <- Serve(ctx, config) }()
	last := ""
	for ctx.Err() == nil {
		state := ""
		for _, transport := range []string{"udp", "tcp"} {
			client := dns.Client{Net: transport, Timeout: 100 * time.Millisecond}
			query := new(dns.Msg)
			query.SetQuestion("example.org.", dns.TypeA)
			r, _, err := client.ExchangeContext(ctx, query, role[0])
			state += fmt.Sprintf("%s %v ", transport, err == nil && r.Rcode == dns.RcodeRefused)
		}
		if state != last && ctx.Err() == nil {
			fmt.Println(state)
			last = state
		}
	}
	return <-done
}

func TestAddressMayComeAndGo(t *testing.T) {
	t.Parallel()
	p := nodepair.New(t)
	p.IP(0, "route add unreachable 169.254.73.53")
	lines := p.Start(0, "169.254.73.53:53")
	nodepair.Await(t, lines, "udp false tcp false ")
	for range 2 {
		p.IP(0, "addr add 169.254.73.53/32 dev hw-vx0 scope link")
		nodepair.Await(t, lines, "udp true tcp true ")
		p.IP(0, "addr del 169.254.73.53/32 dev hw-vx0")
		nodepair.Await(t, lines, "udp false tcp false ")
	}
}
