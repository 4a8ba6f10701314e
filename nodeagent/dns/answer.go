package dns

import (
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"hawser.dev/hawser/nodeagent/desired"
)

// udpSize is the EDNS buffer size that the server offers and the maximum size of its UDP
// replies: it fits in one packet on any link (DNS flag day 2020).
const udpSize = 1232

// answer returns the reply to a query over TCP, or nil if the query must be ignored.
func answer(s *snapshot, query *dns.Msg) *dns.Msg { return answerWithin(s, query, dns.MaxMsgSize) }

// answerWithin returns the reply to a query, or nil if the query must be ignored. It is pure: the
// reply depends on the data and the query only. It stops adding records when size bytes are used,
// for any number of hosts. Each query starts at a different host.
func answerWithin(s *snapshot, query *dns.Msg, size int) *dns.Msg {
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
	(&reply{Msg: r, snapshot: s, qname: question.Name, qtype: question.Qtype, room: size}).resolve()
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

// reply is a reply under construction.
type reply struct {
	*dns.Msg
	*snapshot
	zone  *zone
	qname string // the name as the client wrote it
	qtype uint16
	// room is the number of bytes left for answer records; the sizes of records are lower
	// bounds. Below zero the answer does not fit, and truncate cuts it.
	room int
}

// answered appends a record of at least the given size in bytes, and reports whether there is room
// for more.
func (r *reply) answered(rr dns.RR, bytes int) bool {
	r.Answer = append(r.Answer, rr)
	r.room -= bytes
	return r.room >= 0
}

// Minimum sizes of a record in bytes: a compressed name and the fixed fields before the data
// (RFC 1035, 4.1.3 and 4.1.4), and the data.
const (
	minRecord = 2 + 10
	minSRV    = minRecord + 6 // and the name of the target, which is not compressed (RFC 2782)
)

func (r *reply) resolve() {
	if r.qtype == dns.TypeAXFR || r.qtype == dns.TypeIXFR {
		r.Rcode = dns.RcodeRefused
		return
	}
	qname := strings.ToLower(r.qname)
	var labels []string
	if r.zone, labels = r.find(qname); r.zone == nil {
		r.reverseName(qname)
		return
	}
	r.Authoritative = true
	exists := r.answerZone(labels)
	if !exists {
		r.Rcode = dns.RcodeNameError
	}
	r.finish(exists, r.zone.name)
}

// finish adds the records of a reply without answers: the SOA with the negative TTL, or for ANY
// the one record of RFC 8482.
func (r *reply) finish(exists bool, apex string) {
	if exists && r.qtype == dns.TypeANY {
		r.Answer = []dns.RR{&dns.HINFO{Hdr: r.zone.header(r.qname, dns.TypeHINFO), Cpu: "RFC8482"}}
	}
	if len(r.Answer) == 0 {
		r.Ns = []dns.RR{r.zone.soa(apex)}
	}
}

// answerZone answers for labels below the zone, and reports whether the name exists. The last label
// is the nearest to the zone. A name between existing names exists without records (RFC 8020).
func (r *reply) answerZone(labels []string) bool {
	n := len(labels)
	switch {
	case n == 0:
		switch r.qtype {
		case dns.TypeSOA:
			r.Answer = []dns.RR{r.zone.soa(r.qname)}
		case dns.TypeNS:
			r.Answer = []dns.RR{&dns.NS{Hdr: r.zone.header(r.qname, dns.TypeNS), Ns: r.zone.server()}}
			r.glue(r.zone.server(), serverName(r.servers))
		}
		return true
	case n == 1 && labels[0] == "dns-version":
		if r.qtype == dns.TypeTXT {
			r.Answer = []dns.RR{&dns.TXT{Hdr: r.zone.header(r.qname, dns.TypeTXT), Txt: []string{specVersion}}}
		}
		return true
	case n == 1 && labels[0] == "dns":
		return true
	case n == 2 && labels[0] == "ns" && labels[1] == "dns":
		r.addAddresses(serverName(r.servers))
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
	return exists && r.answerService(s, labels[:n-3])
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

// answerService answers queries for the labels in front of the service.
func (r *reply) answerService(s *service, labels []string) bool {
	var port, protocol string
	if len(labels) >= 2 && isSpecial(labels[0]) && isSpecial(labels[1]) {
		port, protocol, labels = labels[0][1:], labels[1][1:], labels[2:]
	} else if len(labels) >= 1 && isSpecial(labels[0]) {
		protocol, labels = labels[0][1:], labels[1:]
	}
	at, exists := s.names[strings.Join(labels, ".")]
	// Without cluster names, <cluster>.<svc> has no records; it still exists if pods have names
	// below it.
	bare := exists && at.cluster && !r.zone.spec.ClusterNames
	switch {
	case !exists || bare && len(at.targets) == 0 || bare && !s.spec.Headless:
		return false
	case bare:
		return protocol == ""
	case s.spec.Headless && len(at.targets) == 0:
		return false // like Kubernetes for a service without ready endpoints
	case protocol == "" && r.qtype == dns.TypeSRV:
		r.srv(s, at, "")
		return true
	case protocol == "":
		r.addAddresses(at)
		return true
	case len(at.targets) == 0:
		return false
	case port == "":
		return slices.ContainsFunc(s.ports, func(p desired.ServicePort) bool { return p.Protocol == protocol })
	}
	found, exists := s.port(port, protocol)
	if exists && r.qtype == dns.TypeSRV {
		r.srv(s, at, portKey(found))
	}
	return exists
}

func isSpecial(label string) bool { return strings.HasPrefix(label, "_") }

// Priority and weight of every SRV record: clusters and pods have equal weight.
const (
	srvPriority = 0
	srvWeight   = 50
)

// srv adds an SRV record for each target and number of a port. An empty port means all ports of the
// service; a number that two protocols use is added once.
func (r *reply) srv(s *service, at *name, port string) {
	base := s.key + ".svc." + r.zone.name
	for target := range rotated(at.targets, r.Id) {
		host := base
		if target != "" {
			host = target + "." + base
		}
		if !packable(host) {
			continue
		}
		n := s.names[target]
		numbers := n.numbers
		if port != "" {
			numbers = []int{n.number(s, port)}
		}
		for _, number := range numbers {
			record := &dns.SRV{
				Hdr: r.zone.header(r.qname, dns.TypeSRV), Priority: srvPriority, Weight: srvWeight, Port: uint16(number), Target: host,
			}
			if !r.answered(record, minSRV+len(host)) {
				return // without addresses, which would not fit either
			}
		}
		r.glue(host, n)
	}
}

// packable reports whether a packet can contain a name. The parts come from several clusters: each
// may be valid, and the whole name too long.
func packable(name string) bool {
	_, is := dns.IsDomainName(name)
	return is
}

// glue adds the addresses of a name in the reply.
func (r *reply) glue(host string, n *name) {
	var glue []dns.RR
	for _, addr := range slices.Concat(n.v4, n.v6) {
		glue = append(glue, r.address(host, addr))
	}
	// The OPT record, if present, stays last.
	if opt := len(r.Extra) - 1; opt >= 0 && r.Extra[opt].Header().Rrtype == dns.TypeOPT {
		r.Extra = append(append(r.Extra[:opt:opt], glue...), r.Extra[opt])
		return
	}
	r.Extra = append(r.Extra, glue...)
}

// addAddresses answers with the addresses of a name, of the type that the query is for.
func (r *reply) addAddresses(n *name) {
	var list []netip.Addr
	switch r.qtype {
	case dns.TypeA:
		list = n.v4
	case dns.TypeAAAA:
		list = n.v6
	}
	for addr := range rotated(list, r.Id) {
		if !r.answered(r.address(r.qname, addr), minRecord+addr.BitLen()/8) {
			return
		}
	}
}

func (r *reply) address(host string, addr netip.Addr) dns.RR {
	if addr.Is4() {
		return &dns.A{Hdr: r.zone.header(host, dns.TypeA), A: net.IP(addr.AsSlice())}
	}
	return &dns.AAAA{Hdr: r.zone.header(host, dns.TypeAAAA), AAAA: net.IP(addr.AsSlice())}
}

// rotated yields all elements of a list, starting at a different index for each query ID.
// Clients that use the first element then spread over the list, and so do incomplete replies.
// IDs are random, so each element is equally likely.
func rotated[T any](list []T, id uint16) iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range list {
			if !yield(list[(int(id)+i)%len(list)]) {
				return
			}
		}
	}
}
