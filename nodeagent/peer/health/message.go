package health

import "hawser.dev/hawser/nodeagent/peer/wire"

// maxPageEntries bounds the entries in one reply.
const maxPageEntries = wire.MaxEntries

// linkAdvert is the report of one end about a link.
type linkAdvert struct {
	rank  Rank
	inUse bool // its cluster sends over this link
	// acceptsTransit reports that the sender accepts transit traffic over this link.
	acceptsTransit bool
	// traffic reports that the sender recently forwarded packets to the peer's cluster, or
	// through it.
	traffic bool
}

// entry is the advert of a gateway about its link to a remote gateway.
type entry struct {
	hash uint64 // of the remote gateway
	linkAdvert
}

// message is a probe or a reply. A reply echoes sequence, nonce and the triggered flag of the
// probe.
type message struct {
	reply       bool // a reply to a node of this cluster may have a page of the link states
	sequence    uint32
	nonce       uint64 // random; prevents forged replies
	from, to    uint64 // hash of the names
	linkAdvert         // of the sender, about the link that the packet takes
	triggered   bool   // triggered update or its reply; its loss does not count
	unsolicited bool   // additional reply to a probe, with a change
	// token authenticates probes between gateways of two clusters. A reply contains the token
	// that the replier expects from this peer. The advert of a probe with that token counts at
	// once. Without the token, the receiver probes the sender first.
	token uint64
	// generation identifies a list of link states. A node sends the generation that it has. If
	// that is not the current one, the reply has the pages of the current list, or only the
	// changes if the node has generation base.
	generation, base uint64
	page, pages      byte
	entries          []entry
}

// hash returns the ID of a gateway on the wire, or of a node, whose Gateway is empty.
func (id GatewayID) hash() uint64 { return wire.HashID(id.String()) }

// wire returns the advert as encoded in messages.
func (a linkAdvert) wire() wire.LinkAdvert {
	return wire.LinkAdvert{Rank: uint8(a.rank), InUse: a.inUse, AcceptsTransit: a.acceptsTransit, Traffic: a.traffic}
}

// number returns a distinct number for each advert.
func (a linkAdvert) bits() uint64 {
	out := uint64(a.rank)
	if a.inUse {
		out += 1 << 8
	}
	if a.acceptsTransit {
		out += 1 << 9
	}
	if a.traffic {
		out += 1 << 10
	}
	return out
}

func advertOf(advert wire.LinkAdvert) linkAdvert {
	return linkAdvert{rank: min(Rank(advert.Rank), Good), inUse: advert.InUse, acceptsTransit: advert.AcceptsTransit, traffic: advert.Traffic}
}

func (m *message) encode() []byte {
	out := wire.Message{
		From: m.from, To: m.to,
		Probe:  &wire.Probe{Reply: m.reply, Sequence: m.sequence, Nonce: m.nonce, Triggered: m.triggered, Unsolicited: m.unsolicited},
		Advert: &wire.Advert{LinkAdvert: m.linkAdvert.wire(), Token: m.token},
	}
	if m.generation != 0 || m.pages > 0 {
		list := &wire.LinkStateList{Generation: m.generation, Base: m.base, Page: m.page, Pages: m.pages}
		for _, e := range m.entries {
			list.Entries = append(list.Entries, wire.Entry{ID: e.hash, LinkAdvert: e.linkAdvert.wire()})
		}
		out.List = list
	}
	return out.Encode()
}

// decodeMessage returns the probe or reply in a datagram. It returns false for a datagram of
// another protocol, and for a datagram without an advert.
func decodeMessage(w *wire.Message) (m message, ok bool) {
	if w.Probe == nil || w.Advert == nil {
		return message{}, false
	}
	m = message{
		reply: w.Probe.Reply, sequence: w.Probe.Sequence, nonce: w.Probe.Nonce, triggered: w.Probe.Triggered, unsolicited: w.Probe.Unsolicited,
		from: w.From, to: w.To, linkAdvert: advertOf(w.Advert.LinkAdvert), token: w.Advert.Token,
	}
	if w.List != nil {
		m.generation, m.base, m.page, m.pages = w.List.Generation, w.List.Base, w.List.Page, w.List.Pages
		for _, e := range w.List.Entries {
			m.entries = append(m.entries, entry{hash: e.ID, linkAdvert: advertOf(e.LinkAdvert)})
		}
	}
	return m, true
}
