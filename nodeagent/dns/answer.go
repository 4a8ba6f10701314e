package dns

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"hawser.dev/hawser/nodeagent/desired"
)

// udpSize is the EDNS buffer size that the server offers and the largest answer
// that it sends over UDP: it fits in one packet on any link (DNS flag day 2020).
const udpSize = 1232

// answer gives the reply to a query, or nil when there must be none. It is pure:
// the reply depends on the data and the query only.
func answer(s *snapshot, query *dns.Msg) *dns.Msg {
	if query.Response {
		return nil
	}
	r := &dns.Msg{MsgHdr: dns.MsgHdr{
		Id:               query.Id,
		Response:         true,
		Opcode:           query.Opcode,
		RecursionDesired: query.RecursionDesired,
		CheckingDisabled: query.CheckingDisabled,
	}}
	if query.Opcode != dns.OpcodeQuery {
		r.Question = query.Question
		r.Rcode = dns.RcodeNotImplemented
		return r
	}
	if len(query.Question) != 1 {
		r.Rcode = dns.RcodeFormatError
		return r
	}
	r.Question = query.Question
	switch opts := optsOf(query); {
	case len(opts) > 1: // RFC 6891, 6.1.1
		r.Rcode = dns.RcodeFormatError
		return r
	case len(opts) == 1:
		r.SetEdns0(udpSize, opts[0].Do())
		if opts[0].Version() != 0 {
			r.Rcode = dns.RcodeBadVers
			return r
		}
	}
	question := query.Question[0]
	if question.Qclass != dns.ClassINET && question.Qclass != dns.ClassANY {
		r.Rcode = dns.RcodeRefused
		return r
	}
	(&reply{Msg: r, snapshot: s, asked: question.Name, qtype: question.Qtype}).resolve()
	return r
}

func optsOf(m *dns.Msg) []*dns.OPT {
	var opts []*dns.OPT
	for _, rr := range m.Extra {
		if opt, is := rr.(*dns.OPT); is {
			opts = append(opts, opt)
		}
	}
	return opts
}

// reply is an answer in the making.
type reply struct {
	*dns.Msg
	*snapshot
	zone  *zone
	asked string // the name as the client wrote it
	qtype uint16
}

func (r *reply) resolve() {
	if r.qtype == dns.TypeAXFR || r.qtype == dns.TypeIXFR {
		r.Rcode = dns.RcodeRefused
		return
	}
	asked := strings.ToLower(r.asked)
	var labels []string
	if r.zone, labels = r.find(asked); r.zone == nil {
		r.reverseName(asked)
		return
	}
	r.Authoritative = true
	exists := r.inZone(labels)
	if !exists {
		r.Rcode = dns.RcodeNameError
	}
	r.finish(exists, r.zone.name)
}

// finish adds what an answer without records needs: the SOA that says how long
// "no" may be remembered, or for ANY the one record of RFC 8482.
func (r *reply) finish(exists bool, apex string) {
	if exists && r.qtype == dns.TypeANY {
		r.Answer = []dns.RR{&dns.HINFO{Hdr: r.zone.header(r.asked, dns.TypeHINFO), Cpu: "RFC8482"}}
	}
	if len(r.Answer) == 0 {
		r.Ns = []dns.RR{r.zone.soa(apex)}
	}
}

// inZone answers for labels below the zone, nearest last, and reports whether
// the name exists. A name between existing ones exists without records (RFC 8020).
func (r *reply) inZone(labels []string) bool {
	n := len(labels)
	switch {
	case n == 0:
		switch r.qtype {
		case dns.TypeSOA:
			r.Answer = []dns.RR{r.zone.soa(r.asked)}
		case dns.TypeNS:
			r.Answer = []dns.RR{&dns.NS{Hdr: r.zone.header(r.asked, dns.TypeNS), Ns: r.zone.server()}}
			r.glue(r.zone.server(), serverName(r.servers))
		}
		return true
	case n == 1 && labels[0] == "dns-version":
		if r.qtype == dns.TypeTXT {
			r.Answer = []dns.RR{&dns.TXT{Hdr: r.zone.header(r.asked, dns.TypeTXT), Txt: []string{specVersion}}}
		}
		return true
	case n == 1 && labels[0] == "dns":
		return true
	case n == 2 && labels[0] == "ns" && labels[1] == "dns":
		r.Answer = r.addresses(r.asked, serverName(r.servers), r.qtype)
		return true
	case labels[n-1] != "svc":
		return false
	case n == 1:
		return true
	case n == 2:
		_, exists := r.namespaces.get(labels[0])
		return exists
	}
	s, exists := r.services.get(labels[n-3] + "." + labels[n-2])
	return exists && r.inService(s, labels[:n-3])
}

func serverName(servers []netip.Addr) *name {
	n := &name{}
	for _, server := range servers {
		if server.IsValid() && !server.IsUnspecified() {
			n.add([]netip.Addr{server.WithZone("")})
		}
	}
	return n
}

// inService answers for the labels before those of the service.
func (r *reply) inService(s *service, labels []string) bool {
	var port, protocol string
	if len(labels) >= 2 && isSpecial(labels[0]) && isSpecial(labels[1]) {
		port, protocol, labels = labels[0][1:], labels[1][1:], labels[2:]
	} else if len(labels) >= 1 && isSpecial(labels[0]) {
		protocol, labels = labels[0][1:], labels[1:]
	}
	at, exists := s.names[strings.Join(labels, ".")]
	// Without cluster names, <cluster>.<svc> holds no records; it still exists when
	// there are pods' names below it.
	bare := exists && at.cluster && !r.zone.spec.ClusterNames
	switch {
	case !exists || bare && len(at.targets) == 0 || bare && !s.spec.Headless:
		return false
	case bare:
		return protocol == ""
	case s.spec.Headless && len(at.targets) == 0:
		return false // as Kubernetes has it for a service without ready endpoints
	case protocol == "" && r.qtype == dns.TypeSRV:
		r.srv(s, at, s.spec.Ports)
		return true
	case protocol == "":
		r.Answer = r.addresses(r.asked, at, r.qtype)
		return true
	case len(at.targets) == 0:
		return false
	case port == "":
		return slices.ContainsFunc(s.ports, func(p desired.ServicePort) bool { return p.Protocol == protocol })
	}
	found, exists := s.port(port, protocol)
	if exists && r.qtype == dns.TypeSRV {
		r.srv(s, at, []desired.ServicePort{found})
	}
	return exists
}

func isSpecial(label string) bool { return strings.HasPrefix(label, "_") }

// Priority and weight of every SRV record: clusters and pods count alike.
const (
	srvPriority = 0
	srvWeight   = 50
)

// srv gives one record for each target and port: a number that two protocols have
// counts once, as the name does not tell them apart.
func (r *reply) srv(s *service, at *name, ports []desired.ServicePort) {
	base := strings.ToLower(s.spec.Name+"."+s.spec.Namespace) + ".svc." + r.zone.name
	for _, target := range rotate(at.targets, r.Id) {
		host := base
		if target != "" {
			host = target + "." + base
		}
		if !packable(host) {
			continue
		}
		var told []int
		for _, p := range ports {
			number := s.names[target].number(p)
			if slices.Contains(told, number) {
				continue
			}
			told = append(told, number)
			r.Answer = append(r.Answer, &dns.SRV{
				Hdr:      r.zone.header(r.asked, dns.TypeSRV),
				Priority: srvPriority,
				Weight:   srvWeight,
				Port:     uint16(number),
				Target:   host,
			})
		}
		r.glue(host, s.names[target])
	}
}

// packable reports whether a packet can hold a name. Names of the clusters are joined
// here: each may be one, and all of them together none.
func packable(name string) bool {
	_, is := dns.IsDomainName(name)
	return is
}

// glue adds the addresses of a name that the answer speaks of.
func (r *reply) glue(host string, n *name) {
	glue := append(r.addresses(host, n, dns.TypeA), r.addresses(host, n, dns.TypeAAAA)...)
	// The OPT record, when there is one, stays last.
	if opt := len(r.Extra) - 1; opt >= 0 && r.Extra[opt].Header().Rrtype == dns.TypeOPT {
		r.Extra = append(append(r.Extra[:opt:opt], glue...), r.Extra[opt])
		return
	}
	r.Extra = append(r.Extra, glue...)
}

// addresses gives the records of one type. Of several addresses, each query
// begins with another one, so that clients that take the first spread.
func (r *reply) addresses(host string, n *name, qtype uint16) []dns.RR {
	var out []dns.RR
	switch qtype {
	case dns.TypeA:
		for _, addr := range rotate(n.v4, r.Id) {
			out = append(out, &dns.A{Hdr: r.zone.header(host, qtype), A: net.IP(addr.AsSlice())})
		}
	case dns.TypeAAAA:
		for _, addr := range rotate(n.v6, r.Id) {
			out = append(out, &dns.AAAA{Hdr: r.zone.header(host, qtype), AAAA: net.IP(addr.AsSlice())})
		}
	}
	return out
}

// rotate gives the list from another place for each query id.
func rotate[T any](list []T, id uint16) []T {
	if len(list) < 2 {
		return list
	}
	start := int(id) % len(list)
	return append(append(make([]T, 0, len(list)), list[start:]...), list[:start]...)
}
