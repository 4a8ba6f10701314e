package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// Lookup asks a name server from inside the pod for the addresses of a name of one
// family; no such name is no address.
func (p Pod) Lookup(server netip.AddrPort, name string, six bool) ([]string, error) {
	conn, err := p.dial(unix.SOCK_DGRAM, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(impatient)); err != nil {
		return nil, err
	}
	kind := dns.TypeA
	if six {
		kind = dns.TypeAAAA
	}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	c := &dns.Conn{Conn: conn}
	if err := c.WriteMsg(question); err != nil {
		return nil, fmt.Errorf("%s asks for %s: %w", p.Name, name, err)
	}
	reply, err := c.ReadMsg()
	if err != nil {
		return nil, fmt.Errorf("%s asks for %s: %w", p.Name, name, err)
	}
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("%s asks for %s: %s", p.Name, name, dns.RcodeToString[reply.Rcode])
	}
	var out []string
	for _, record := range reply.Answer {
		switch a := record.(type) {
		case *dns.A:
			out = append(out, a.A.String())
		case *dns.AAAA:
			out = append(out, a.AAAA.String())
		}
	}
	slices.Sort(out)
	return out, nil
}
