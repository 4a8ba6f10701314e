package health

import "hawser.dev/hawser/nodeagent/peer/wire"

// maxPage bounds the entries in one reply.
const maxPage = wire.MaxEntries

// linkAdvert is what one end says of a link.
type linkAdvert struct {
	rank  Rank
	inUse bool // its cluster sends over this link
	// acceptsTransit says that it takes, over this link, what clusters passed on.
	acceptsTransit bool
}

// entry is what a gateway says of its link to a remote gateway.
type entry struct {
	hash uint64 // of the remote gateway
	linkAdvert
}

// message is what this package says and hears. A reply echoes sequence, nonce and poke of
// the probe.
type message struct {
	reply      bool // to a probe; to a node of the own cluster with a page of the reach list
	sequence   uint32
	nonce      uint64 // of the prober; a guess cannot answer for a peer
	from, to   uint64 // hash of the names
	linkAdvert        // of the sender, about the link that the packet takes
	poke       bool   // out of turn: no probe whose loss would count, nor its reply
	push       bool   // a second reply to a probe, as there is news
	// token, between gateways of two clusters: a reply brings the replier's own, which it
	// gives to this peer alone, and what a probe says counts at once when it brings back
	// that of the other end. Who sends 0 is asked instead.
	token uint64
	// generation names a reach list. A node says which one it has; the reply brings
	// the pages of the current one only when it differs, or just the changes when
	// base is the one that the node has.
	generation, base uint64
	page, pages      byte
	reach            []entry
}

// hash names a gateway (or a node, whose Gateway is empty) on the wire.
func (p GatewayID) hash() uint64 { return wire.HashID(p.String()) }

// wire gives the word as messages have it.
func (w linkAdvert) wire() wire.LinkAdvert {
	return wire.LinkAdvert{Rank: uint8(w.rank), InUse: w.inUse, AcceptsTransit: w.acceptsTransit}
}

// number is another one for each word.
func (w linkAdvert) number() uint64 {
	out := uint64(w.rank)
	if w.inUse {
		out += 1 << 8
	}
	if w.acceptsTransit {
		out += 1 << 9
	}
	return out
}

func wordOf(w wire.LinkAdvert) linkAdvert {
	return linkAdvert{rank: min(Rank(w.Rank), Good), inUse: w.InUse, acceptsTransit: w.AcceptsTransit}
}

func (m *message) encode() []byte {
	out := wire.Message{
		From: m.from, To: m.to,
		Probe:  &wire.Probe{Reply: m.reply, Sequence: m.sequence, Nonce: m.nonce, Triggered: m.poke, Unsolicited: m.push},
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

// decodeMessage gives what a datagram says to this package; false = nothing. One without a word
// of its sender is no probe of this version.
func decodeMessage(w *wire.Message) (m message, ok bool) {
	if w.Probe == nil || w.Advert == nil {
		return message{}, false
	}
	m = message{
		reply: w.Probe.Reply, sequence: w.Probe.Sequence, nonce: w.Probe.Nonce, poke: w.Probe.Triggered, push: w.Probe.Unsolicited,
		from: w.From, to: w.To, linkAdvert: wordOf(w.Advert.LinkAdvert), token: w.Advert.Token,
	}
	if w.List != nil {
		m.generation, m.base, m.page, m.pages = w.List.Generation, w.List.Base, w.List.Page, w.List.Pages
		for _, e := range w.List.Entries {
			m.reach = append(m.reach, entry{hash: e.ID, linkAdvert: wordOf(e.LinkAdvert)})
		}
	}
	return m, true
}
