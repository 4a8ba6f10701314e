package reach

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/schema/fabric"
)

// failure is an ICMP error that arrives from a tunnel, about a packet sent into it.
type failure struct {
	from   netip.Addr // source of the error
	remote netip.Addr // the remote end of the packet's flow
	about  Packet     // the quoted packet, as it entered the tunnel
}

// failure draws an error about a flow that a packet just started between a pod and another
// cluster. Its source is an address of some cluster of the clusterset.
func (w *world) failure(rng *rand.Rand, p Packet, out []seen) (failure, bool) {
	if p.Protocol == "icmp" || len(out) != 1 || out[0].protocol != p.Protocol || p.Via != "" || out[0].via.IsValid() || rng.IntN(2) == 0 {
		return failure{}, false
	}
	var e failure
	switch {
	case p.From == Pod && out[0].at == Tunnel:
		e = failure{remote: out[0].dst.Addr(), about: Packet{Protocol: p.Protocol, Src: out[0].src, Dst: out[0].dst}}
	case p.From == Tunnel && out[0].at == Pod:
		e = failure{remote: p.Src.Addr(), about: Packet{Protocol: p.Protocol, Src: p.Dst, Dst: p.Src}}
	default:
		return failure{}, false
	}
	var from []netip.Addr
	for i := range w.fabric.Clusters {
		c := &w.fabric.Clusters[i]
		if c.Name == own {
			continue
		}
		from = append(append(from, c.Gateways[0].Addresses...), c.EgressIPs...)
		for _, prefix := range slices.Concat(c.GlobalCIDRs, c.PodCIDRs) {
			if a := nth(prefix, 200); w.sends(c, a) {
				from = append(from, a)
			}
		}
	}
	from = slices.DeleteFunc(from, func(a netip.Addr) bool { return fabric.Family(a) != fabric.Family(e.remote) })
	if len(from) == 0 {
		return failure{}, false
	}
	e.from = pick(rng, from...)
	return e, true
}

// bytes encodes the error. The quoted packet ends with the identity.
func (e failure) bytes(id uint32) []byte {
	message := append([]byte{3, 4, 0, 0, 0, 0, 0x05, 0x14}, raw(e.about, id)...) // fragmentation needed, MTU 1300
	to, proto, pseudo := e.about.Src.Addr(), byte(unix.IPPROTO_ICMP), uint32(0)
	if to.Is6() {
		message[0], message[1], proto = 2, 0, unix.IPPROTO_ICMPV6 // packet too big
		pseudo = fold(fold(uint32(proto)+uint32(len(message)), e.from.AsSlice()), to.AsSlice())
	}
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo, message))
	return append(header(e.from, to, proto, len(message)), message...)
}

// sendError sends the error and reports whether it arrives at the pod.
func (s *space) sendError(e failure, id uint32, wait bool) bool {
	s.t.Helper()
	out := s.send(Tunnel, e.bytes(id))
	for start := time.Now(); wait && len(out) == 0 && time.Since(start) < arrivalTimeout; {
		out = s.drain()
	}
	return slices.ContainsFunc(out, func(o seen) bool { return o.at == Pod && o.protocol == "icmp error" && o.id == id })
}
