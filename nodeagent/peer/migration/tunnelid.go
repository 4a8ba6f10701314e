package migration

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"hawser.dev/hawser/internal/stablehash"
)

// TunnelID identifies one tunnel between two gateways; both ends compute the same ID. It has no
// settings that can change in place, such as MTU and keepalive.
type TunnelID struct {
	Driver string `json:"driver"`
	// Ports are the base ports (UDP) of both ends. The gateway whose name sorts first
	// comes first. They are 0 if the driver has fixed ports.
	Ports [2]int `json:"ports"`
	// Alternate marks the secondary tunnel: both ends use the alternate ports, or the
	// alternate tunnel addresses if the driver has fixed ports.
	Alternate bool `json:"alt,omitempty"`
	// Epoch is the epoch of its keys; 0 = the driver has no keys.
	Epoch int `json:"epoch,omitempty"`
}

// String returns the tunnel as in "wireguard 51820-51820". Both ends must return the
// same text, because its hash is the name on the wire. The first epoch is left out.
func (c TunnelID) String() string {
	text := c.Driver
	if c.Ports != [2]int{} {
		text += " " + strconv.Itoa(c.Ports[0]) + "-" + strconv.Itoa(c.Ports[1])
	}
	if c.Alternate {
		text += " (secondary)"
	}
	if c.Epoch > 1 {
		text += " (epoch " + strconv.Itoa(c.Epoch) + ")"
	}
	return text
}

// hash returns the name of the tunnel on the wire.
func (c TunnelID) hash() uint64 { return stablehash.Sum64(c.String()) }

// conflictsWith reports whether one end cannot have both tunnels, because it would
// listen on one port or address twice. Neighboring epochs have ports and addresses of
// their own.
func (c TunnelID) conflictsWith(o TunnelID) bool {
	if c == o || c.Driver != o.Driver {
		return false
	}
	if c.Ports == [2]int{} {
		return c.addressParity() == o.addressParity()
	}
	return c.Alternate == o.Alternate && c.Epoch%2 == o.Epoch%2 && (c.Ports[0] == o.Ports[0] || c.Ports[1] == o.Ports[1])
}

// addressParity distinguishes the two tunnels that a driver with fixed ports can have.
func (c TunnelID) addressParity() bool { return (c.Epoch%2 == 1) != c.Alternate }

// counterpart returns the secondary tunnel of a primary one, and vice versa.
func (c TunnelID) counterpart() TunnelID {
	c.Alternate = !c.Alternate
	return c
}

func compareTunnels(a, b TunnelID) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Ports[0], b.Ports[0]), cmp.Compare(a.Ports[1], b.Ports[1]),
		cmp.Compare(fmt.Sprint(a.Alternate), fmt.Sprint(b.Alternate)), cmp.Compare(a.Epoch, b.Epoch))
}

// Keys lists, by driver, the epochs for which this end has both its private key and
// the public key of the peer, ascending. nil = no keys are loaded yet; no tunnel is then
// removed for its keys.
type Keys map[string][]int

// has reports whether there are keys for a tunnel.
func (k Keys) has(c TunnelID) bool {
	return k == nil || c.Epoch == 0 || slices.Contains(k[c.Driver], c.Epoch)
}

// Saved is the state of a pair for the next agent.
type Saved struct {
	Tunnels []TunnelID `json:"tunnels"` // sorted
	Active  TunnelID   `json:"active"`
}

func (s Saved) equal(o Saved) bool { return s.Active == o.Active && slices.Equal(s.Tunnels, o.Tunnels) }
