package dns

import (
	"strings"

	"github.com/miekg/dns"

	"hawser.dev/hawser/nodeagent/desired"
)

// Timers of the SOA. The server supports no zone transfers, so only the negative TTL, which is
// the zone's TTL, has an effect (RFC 2308).
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
)

// specVersion is the version of the multicluster DNS specification that the
// zone follows; clients find it at dns-version.<domain>.
const specVersion = "1.0.0"

// zone is one domain, prepared for answers.
type zone struct {
	spec desired.Zone
	name string // lower case, fully qualified
	ttl  uint32 // seconds
}

func (z *zone) server() string { return "ns.dns." + z.name }

func (z *zone) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.ttl}
}

// soa returns the SOA with the given owner: the zone's own name, or a reverse name, each of which
// is its own zone.
func (z *zone) soa(owner string) dns.RR {
	return &dns.SOA{
		Hdr:     z.header(owner, dns.TypeSOA),
		Ns:      z.server(),
		Mbox:    "hostmaster." + z.name,
		Serial:  z.spec.Serial,
		Refresh: soaRefresh,
		Retry:   soaRetry,
		Expire:  soaExpire,
		Minttl:  z.ttl,
	}
}

// find returns the zone of a lower-case name, and the labels in front of the zone's name; nil if no
// zone has it.
func (s *snapshot) find(name string) (*zone, []string) {
	for _, z := range s.zones {
		rest, inside := strings.CutSuffix(name, z.name)
		switch {
		case !inside:
		case rest == "":
			return z, nil
		case strings.IndexByte(rest, '\\') >= 0:
			// An escaped dot does not separate labels. No name of ours has one.
			if dns.IsSubDomain(z.name, name) {
				return z, []string{rest}
			}
		case rest[len(rest)-1] == '.':
			return z, strings.Split(rest[:len(rest)-1], ".")
		}
	}
	return nil, nil
}
