package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// Lookup asks a name server from inside the pod for the IPv4 addresses of a name;
// no such name is no address.
func (p Pod) Lookup(server netip.AddrPort, name string) ([]string, error) {
	conn, err := p.dial(unix.SOCK_DGRAM, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(impatient)); err != nil {
		return nil, err
	}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
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
		if a, ok := record.(*dns.A); ok {
			out = append(out, a.A.String())
		}
	}
	slices.Sort(out)
	return out, nil
}
