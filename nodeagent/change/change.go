// Package change carries the traffic of a pair of gateways from one tunnel to
// another without losing a packet. Both ends learn at different times that
// another tunnel is wanted, so for a while a pair has several: each end makes the
// new one beside the old one and takes packets on all of them; both probe it; an
// end sends over it once its probes are answered and the other end says the
// same; and the old one goes when both ends have left it for a while. A tunnel
// that never works is never used, and one that works is never given up for it.
//
// Pair is the state machine of one pair, and pure. Exchange talks to the other
// ends.
package change

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hawser.dev/hawser/internal/spread"
)

// Tunnel is one tunnel between two gateways. What can change in place, as MTU and
// keepalive, is no part of it.
type Tunnel struct {
	Driver string `json:"driver"`
	// Ports are the base ports (UDP) of both ends, that of the gateway whose name
	// sorts first in front; 0 where they tell no tunnels apart.
	Ports [2]int `json:"ports"`
	// Alt says that both ends listen at the other end of their ranges, as they
	// already use the ports themselves for the tunnel before. Where ports tell no
	// tunnels apart it stands between the addresses of the other sort of epochs.
	Alt bool `json:"alt,omitempty"`
	// Epoch is that of its keys; 0 = the driver has none.
	Epoch int `json:"epoch,omitempty"`
}

// String gives the tunnel as in "wireguard 51820-51820". Both ends write it alike,
// whatever else they know, so the first epoch is never named.
func (c Tunnel) String() string {
	text := c.Driver
	if c.Ports != [2]int{} {
		text += fmt.Sprintf(" %d-%d", c.Ports[0], c.Ports[1])
	}
	switch {
	case c.Alt && c.Ports != [2]int{}:
		text += " (other ports)"
	case c.Alt:
		text += " (beside it)"
	}
	if c.Epoch > 1 {
		text += fmt.Sprintf(" (epoch %d)", c.Epoch)
	}
	return text
}

// hash names the tunnel on the wire.
func (c Tunnel) hash() uint64 { return spread.Hash(c.String()) }

// clashes reports whether an end cannot have both: it would listen on one port
// twice. Neighbouring epochs have ports, or addresses, of their own.
func (c Tunnel) clashes(o Tunnel) bool {
	if c == o || c.Driver != o.Driver {
		return false
	}
	if c.Ports == [2]int{} {
		return c.odd() == o.odd()
	}
	return c.Alt == o.Alt && c.Epoch%2 == o.Epoch%2 && (c.Ports[0] == o.Ports[0] || c.Ports[1] == o.Ports[1])
}

// odd tells apart the two tunnels that there can be without ports.
func (c Tunnel) odd() bool { return (c.Epoch%2 == 1) != c.Alt }

// other is the same tunnel at the other ports, or between the other addresses.
func (c Tunnel) other() Tunnel {
	c.Alt = !c.Alt
	return c
}

// Keys gives the epochs of which this end has its own private and the other end's
// public key, ascending, by driver; nil = not known, so any may do.
type Keys map[string][]int

// open reports whether there are keys for a tunnel.
func (k Keys) open(c Tunnel) bool {
	return k == nil || c.Epoch == 0 || slices.Contains(k[c.Driver], c.Epoch)
}

// Kept is what the next run of an agent has to know of a pair.
type Kept struct {
	Tunnels []Tunnel `json:"cables"`
	Use     Tunnel   `json:"use"`
}

// Progress says how far the change of a pair is, for people.
type Progress struct {
	Use   Tunnel    // carries the traffic
	Next  Tunnel    // is wanted instead; the same as Use when that is in use
	Since time.Time // when Next was wanted first
	Why   string    // what Next waits for; empty when it is in use
}

// The times and counts of a change.
const (
	eager     = 200 * time.Millisecond // between asks while things happen
	patient   = 2 * time.Second        // while nothing does
	news      = 10 * time.Second       // for how long an event counts as something that happens
	company   = 5 * time.Second        // for how long an end that is asked asks too
	proof     = 2                      // answers in a row that prove a tunnel
	misses    = 4                      // asks in a row without an answer that disprove it,
	silence   = 2 * time.Second        // if they took as long as this
	linger    = 5 * time.Second        // that a tunnel stays after both ends left it
	patience  = 30 * time.Second       // of a link that is down, before its other end is called over the secondary tunnel
	forgetful = 10 * time.Second       // of silence, after which an end may number its messages anew
	echoes    = 32                     // asks of a tunnel whose answers count
	most      = 6                      // tunnels of a pair at a time
)

// said is what an end says of one tunnel.
type said struct {
	standing bool // it is made, and takes packets
	proved   bool // asks over it are answered
	uses     bool // it may send over it
	leaving  bool // it wants to give it up
	// secondary: it wants both ends to go over this one for now; see Pair.Secondary
	secondary bool
}

// hold is a tunnel that this end has, or is about to make.
type hold struct {
	Tunnel
	standing bool
	stage    Stage
	offered  uint64    // the number of the first message that said that it is proved or in use; 0 = none
	leaving  uint64    // the number of the first that says that this end leaves it; 0 = none
	released time.Time // of the stage of that name

	asks     [echoes]uint64 // their numbers
	asked    int            // of all asks
	row      int            // answers in a row
	missed   int            // asks since the last that was answered
	answered time.Time
}

// proved reports whether packets get through in both directions.
func (h *hold) proved() bool { return h.standing && h.row >= proof }

// ask notes a message that asks over the tunnel.
func (h *hold) ask(number uint64, now time.Time) {
	if h.missed >= misses && now.Sub(h.answered) > silence {
		h.row = 0
	}
	h.asks[h.asked%echoes] = number
	h.asked++
	h.missed++
}

// answer notes an answer to one of the last asks.
func (h *hold) answer(number uint64, now time.Time) bool {
	for back := range min(echoes, h.asked) {
		slot := &h.asks[(h.asked-1-back)%echoes]
		if *slot != number || number == 0 {
			continue
		}
		*slot = 0
		h.row++
		h.missed, h.answered = min(h.missed, back), now
		return true
	}
	return false
}

// lost reports whether a tunnel that worked does so no more.
func (h *hold) lost(now time.Time) bool {
	return h.missed >= misses && now.Sub(h.answered) > silence
}

func compareTunnels(a, b Tunnel) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Ports[0], b.Ports[0]), cmp.Compare(a.Ports[1], b.Ports[1]),
		cmp.Compare(fmt.Sprint(a.Alt), fmt.Sprint(b.Alt)), cmp.Compare(a.Epoch, b.Epoch))
}
