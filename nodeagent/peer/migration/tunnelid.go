// Package migration carries the traffic of a pair of gateways from one tunnel to
// another without losing a packet. Both ends learn at different times that
// another tunnel is wanted, so for a while a pair has several: each end makes the
// new one beside the old one and takes packets on all of them; both probe it; an
// end sends over it once its probes are answered and the other end says the
// same; and the old one goes when both ends have left it for a while. A tunnel
// that never works is never used, and one that works is never given up for it.
//
// Pair is the state machine of one pair, and pure. Exchange talks to the other
// ends.
package migration

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hawser.dev/hawser/internal/stablehash"
)

// TunnelID is one tunnel between two gateways. What can change in place, as MTU and
// keepalive, is no part of it.
type TunnelID struct {
	Driver string `json:"driver"`
	// Ports are the base ports (UDP) of both ends, that of the gateway whose name
	// sorts first in front; 0 where they tell no tunnels apart.
	Ports [2]int `json:"ports"`
	// Alternate says that both ends listen at the other end of their ranges, as they
	// already use the ports themselves for the tunnel before. Where ports tell no
	// tunnels apart it stands between the addresses of the other sort of epochs.
	Alternate bool `json:"alt,omitempty"`
	// Epoch is that of its keys; 0 = the driver has none.
	Epoch int `json:"epoch,omitempty"`
}

// String gives the tunnel as in "wireguard 51820-51820". Both ends write it alike,
// whatever else they know, so the first epoch is never named.
func (c TunnelID) String() string {
	text := c.Driver
	if c.Ports != [2]int{} {
		text += fmt.Sprintf(" %d-%d", c.Ports[0], c.Ports[1])
	}
	switch {
	case c.Alternate && c.Ports != [2]int{}:
		text += " (other ports)"
	case c.Alternate:
		text += " (beside it)"
	}
	if c.Epoch > 1 {
		text += fmt.Sprintf(" (epoch %d)", c.Epoch)
	}
	return text
}

// hash names the tunnel on the wire.
func (c TunnelID) hash() uint64 { return stablehash.Sum64(c.String()) }

// conflictsWith reports whether an end cannot have both: it would listen on one port
// twice. Neighbouring epochs have ports, or addresses, of their own.
func (c TunnelID) conflictsWith(o TunnelID) bool {
	if c == o || c.Driver != o.Driver {
		return false
	}
	if c.Ports == [2]int{} {
		return c.addressParity() == o.addressParity()
	}
	return c.Alternate == o.Alternate && c.Epoch%2 == o.Epoch%2 && (c.Ports[0] == o.Ports[0] || c.Ports[1] == o.Ports[1])
}

// addressParity tells apart the two tunnels that there can be without ports.
func (c TunnelID) addressParity() bool { return (c.Epoch%2 == 1) != c.Alternate }

// counterpart is the same tunnel at the other ports, or between the other addresses.
func (c TunnelID) counterpart() TunnelID {
	c.Alternate = !c.Alternate
	return c
}

// Keys gives the epochs of which this end has its own private and the other end's
// public key, ascending, by driver; nil = not known, so any may do.
type Keys map[string][]int

// open reports whether there are keys for a tunnel.
func (k Keys) open(c TunnelID) bool {
	return k == nil || c.Epoch == 0 || slices.Contains(k[c.Driver], c.Epoch)
}

// Saved is what the next run of an agent has to know of a pair.
type Saved struct {
	Tunnels []TunnelID `json:"cables"`
	Use     TunnelID   `json:"use"`
}

// Progress says how far the change of a pair is, for people.
type Progress struct {
	Active TunnelID  // carries the traffic
	Target TunnelID  // is wanted instead; the same as Use when that is in use
	Since  time.Time // when Next was wanted first
	Why    string    // what Next waits for; empty when it is in use
}

// The times and counts of a change.
const (
	activeInterval = 200 * time.Millisecond // between asks while things happen
	idleInterval   = 2 * time.Second        // while nothing does
	activeWindow   = 10 * time.Second       // for how long an event counts as something that happens
	reciprocalTime = 5 * time.Second        // for how long an end that is asked asks too
	verifyReplies  = 2                      // answers in a row that prove a tunnel
	misses         = 4                      // asks in a row without an answer that disprove it,
	minSilence     = 2 * time.Second        // if they took as long as this
	retireDelay    = 5 * time.Second        // that a tunnel stays after both ends left it
	secondaryAfter = 30 * time.Second       // of a link that is down, before its other end is called over the secondary tunnel
	seqResetAfter  = 10 * time.Second       // of silence, after which an end may number its messages anew
	probeHistory   = 32                     // asks of a tunnel whose answers count
	most           = 6                      // tunnels of a pair at a time
)

// peerTunnel is what an end says of one tunnel.
type peerTunnel struct {
	installed   bool // it is made, and takes packets
	verified    bool // asks over it are answered
	inUse       bool // it may send over it
	withdrawing bool // it wants to give it up
	// secondary: it wants both ends to go over this one for now; see Pair.Secondary
	secondary bool
}

// localTunnel is a tunnel that this end has, or is about to make.
type localTunnel struct {
	TunnelID
	installed    bool
	stage        Stage
	announcedSeq uint64    // the number of the first message that said that it is proved or in use; 0 = none
	withdrawnSeq uint64    // the number of the first that says that this end leaves it; 0 = none
	released     time.Time // of the stage of that name

	asks     [probeHistory]uint64 // their numbers
	asked    int                  // of all asks
	streak   int                  // answers in a row
	missed   int                  // asks since the last that was answered
	answered time.Time
}

// verified reports whether packets get through in both directions.
func (h *localTunnel) verified() bool { return h.installed && h.streak >= verifyReplies }

// ask notes a message that asks over the tunnel.
func (h *localTunnel) ask(number uint64, now time.Time) {
	if h.missed >= misses && now.Sub(h.answered) > minSilence {
		h.streak = 0
	}
	h.asks[h.asked%probeHistory] = number
	h.asked++
	h.missed++
}

// answer notes an answer to one of the last asks.
func (h *localTunnel) answer(number uint64, now time.Time) bool {
	for back := range min(probeHistory, h.asked) {
		slot := &h.asks[(h.asked-1-back)%probeHistory]
		if *slot != number || number == 0 {
			continue
		}
		*slot = 0
		h.streak++
		h.missed, h.answered = min(h.missed, back), now
		return true
	}
	return false
}

// isLost reports whether a tunnel that worked does so no more.
func (h *localTunnel) isLost(now time.Time) bool {
	return h.missed >= misses && now.Sub(h.answered) > minSilence
}

func compareTunnels(a, b TunnelID) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Ports[0], b.Ports[0]), cmp.Compare(a.Ports[1], b.Ports[1]),
		cmp.Compare(fmt.Sprint(a.Alternate), fmt.Sprint(b.Alternate)), cmp.Compare(a.Epoch, b.Epoch))
}
