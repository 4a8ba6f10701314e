package health

import "hawser.dev/hawser/nodeagent/peer/wire"

// maxPage bounds the entries in one reply.
const maxPage = wire.MaxEntries

// linkAdvert is the report of one end about a link.
type linkAdvert struct {
	rank  Rank
	inUse bool // its cluster sends over this link
	// acceptsTransit says that the sender accepts transit traffic over this link.
	acceptsTransit bool
	// traffic says that the sender recently forwarded packets to the other end's cluster, or through it.
	traffic bool
}

// entry is the report of a gateway about its link to a remote gateway.
type entry struct {
	hash uint64 // of the remote gateway
	linkAdvert
}

// message is a probe or a reply. A reply repeats sequence, nonce and the triggered flag of the probe.
type message struct {
	reply       bool // to a node of the own cluster with a page of the link states
	sequence    uint32
	nonce       uint64 // of the prober; it makes forged replies unlikely
	from, to    uint64 // hash of the names
	linkAdvert         // of the sender, about the link that the packet takes
	triggered   bool   // triggered update or its reply; a loss does not count
	unsolicited bool   // a further reply to a probe, with a change
	// token authenticates probes between gateways of two clusters. A reply contains the
	// replier's token for this peer. The advert of a probe with that token counts at once;
	// without it, the receiver probes the sender first.
	token uint64
	// generation identifies a list of link states. A node sends the generation that it has.
	// The reply has the pages of the current list if it differs, or only the changes if the
	// node has the list base.
	generation, base uint64
	page, pages      byte
	reach            []entry
}

// hash returns the ID of a gateway on the wire, or of a node, whose Gateway is empty.
func (p GatewayID) hash() uint64 { return wire.HashID(p.String()) }

// wire returns the advert in the format of messages.
func (w linkAdvert) wire() wire.LinkAdvert {
	return wire.LinkAdvert{Rank: uint8(w.rank), InUse: w.inUse, AcceptsTransit: w.acceptsTransit, Traffic: w.traffic}
}

// number returns a distinct number for each advert.
func (w linkAdvert) number() uint64 {
	out := uint64(w.rank)
	if w.inUse {
		out += 1 << 8
	}
	if w.acceptsTransit {
		out += 1 << 9
	}
	if w.traffic {
		out += 1 << 10
	}
	return out
}

func advertOf(w wire.LinkAdvert) linkAdvert {
	return linkAdvert{rank: min(Rank(w.Rank), Good), inUse: w.InUse, acceptsTransit: w.AcceptsTransit, traffic: w.Traffic}
}

func (m *message) encode() []byte {
	out := wire.Message{
		From: m.from, To: m.to,
		Probe:  &wire.Probe{Reply: m.reply, Sequence: m.sequence, Nonce: m.nonce, Triggered: m.triggered, Unsolicited: m.unsolicited},
		Advert: &wire.Advert{LinkAdvert: m.linkAdvert.wire(), Token: m.token},
	}
	if m.generation != 0 || m.pages > 0 {
		list := &wire.LinkStateList{Generation: m.generation, Base: m.base, Page: m.page, Pages: m.pages}
		for _, e := range m.reach {
			list.Entries = append(list.Entries, wire.Entry{ID: e.hash, LinkAdvert: e.linkAdvert.wire()})
		}
		out.List = list
	}
	return out.Encode()
}

// decodeMessage returns the probe or reply in a datagram. It reports false for a datagram of another
// protocol, and for one without an advert, which is not of this version.
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
			m.reach = append(m.reach, entry{hash: e.ID, linkAdvert: advertOf(e.LinkAdvert)})
		}
	}
	return m, true
}
