package dns

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// reverseName answers queries below in-addr.arpa and ip6.arpa for the addresses of this server's
// names. It refuses other addresses, as resolve refuses names outside the zones.
func (r *reply) reverseName(asked string) {
	addr, is := parseReverse(asked)
	owners, known := r.reverse.get(addr)
	if !is || !known || len(r.zones) == 0 {
		r.Rcode = dns.RcodeRefused
		return
	}
	r.zone = slices.MinFunc(r.zones, preferred)
	r.Authoritative = true
	switch r.qtype {
	case dns.TypePTR:
		for o := range rotated(owners, r.Id) {
			name := r.nameOf(o)
			if packable(name) && !r.answered(&dns.PTR{Hdr: r.zone.header(r.qname, dns.TypePTR), Ptr: name}, minRecord) {
				break
			}
		}
	case dns.TypeSOA:
		r.Answer = []dns.RR{r.zone.soa(r.qname)}
	}
	r.finish(true, asked)
}

// preferred orders the zones by preference for the names of reverse lookups.
func preferred(a, b *zone) int {
	if a.spec.Extra != b.spec.Extra {
		if a.spec.Extra {
			return 1
		}
		return -1
	}
	return strings.Compare(a.spec.Domain, b.spec.Domain)
}

// nameOf returns the name of an address. In a zone without cluster names, the address of a
// single cluster has the Service's name.
func (r *reply) nameOf(o ptrName) string {
	base := o.service + ".svc." + r.zone.name
	s, _ := r.services.get(o.service)
	if o.name == "" || s.names[o.name].cluster && !r.zone.spec.ClusterNames {
		return base
	}
	return o.name + "." + base
}

// parseReverse parses the address of a reverse name in lower case.
func parseReverse(asked string) (netip.Addr, bool) {
	if text, is := strings.CutSuffix(asked, ".in-addr.arpa."); is {
		labels := strings.Split(text, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		addr, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return addr, err == nil && addr.Is4()
	}
	text, is := strings.CutSuffix(asked, ".ip6.arpa.")
	if !is || len(text) != 63 {
		return netip.Addr{}, false
	}
	var digits [32]byte
	for i := range digits {
		if i > 0 && text[2*i-1] != '.' {
			return netip.Addr{}, false
		}
		digits[31-i] = text[2*i]
	}
	var raw [16]byte
	if _, err := hex.Decode(raw[:], digits[:]); err != nil {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16(raw), true
}
