package migration

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"hawser.dev/hawser/internal/stablehash"
)

// TunnelID identifies one tunnel between two gateways. Both ends compute the same ID. It excludes
// settings of a tunnel that can change in place, such as MTU and keepalive.
type TunnelID struct {
	Driver string `json:"driver"`
	// Ports are the UDP base ports of both ends, sorted by the name of the gateway. They are 0
	// if the driver has fixed ports.
	Ports [2]int `json:"ports"`
	// Alternate marks the secondary tunnel. Both ends use the alternate ports for it, or the
	// alternate addresses if the driver has fixed ports.
	Alternate bool `json:"alt,omitempty"`
	// Epoch is the epoch of the keys; 0 = the driver has no keys.
	Epoch int `json:"epoch,omitempty"`
}

// String returns a text such as "wireguard 51820-51820". Both ends must return the same text,
// because its hash identifies the tunnel in messages. The text omits the first epoch.
func (t TunnelID) String() string {
	text := t.Driver
	if t.Ports != [2]int{} {
		text += " " + strconv.Itoa(t.Ports[0]) + "-" + strconv.Itoa(t.Ports[1])
	}
	if t.Alternate {
		text += " (secondary)"
	}
	if t.Epoch > 1 {
		text += " (epoch " + strconv.Itoa(t.Epoch) + ")"
	}
	return text
}

// hash returns the ID of the tunnel in messages.
func (t TunnelID) hash() uint64 { return stablehash.Sum64(t.String()) }

// conflictsWith reports whether one end cannot have both tunnels, because they need the same port
// or address. Consecutive epochs have different ports and addresses.
func (t TunnelID) conflictsWith(o TunnelID) bool {
	if t == o || t.Driver != o.Driver {
		return false
	}
	if t.Ports == [2]int{} {
		return t.addressParity() == o.addressParity()
	}
	return t.Alternate == o.Alternate && t.Epoch%2 == o.Epoch%2 && (t.Ports[0] == o.Ports[0] || t.Ports[1] == o.Ports[1])
}

// addressParity distinguishes the two tunnels that a driver with fixed ports can have.
func (t TunnelID) addressParity() bool { return (t.Epoch%2 == 1) != t.Alternate }

// counterpart returns the secondary tunnel of a primary one, and vice versa.
func (t TunnelID) counterpart() TunnelID {
	t.Alternate = !t.Alternate
	return t
}

func compareTunnels(a, b TunnelID) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Ports[0], b.Ports[0]), cmp.Compare(a.Ports[1], b.Ports[1]),
		cmp.Compare(fmt.Sprint(a.Alternate), fmt.Sprint(b.Alternate)), cmp.Compare(a.Epoch, b.Epoch))
}

// Keys has the epochs, by driver, for which this end has both its private key and the public key of
// the peer, ascending. nil = keys are not loaded yet, so missing keys remove no tunnel.
type Keys map[string][]int

// has reports whether there are keys for a tunnel.
func (k Keys) has(c TunnelID) bool {
	return k == nil || c.Epoch == 0 || slices.Contains(k[c.Driver], c.Epoch)
}

// Saved is the state of a pair that is saved for the next agent.
type Saved struct {
	Tunnels []TunnelID `json:"tunnels"` // sorted
	Active  TunnelID   `json:"active"`
}

func (s Saved) equal(o Saved) bool { return s.Active == o.Active && slices.Equal(s.Tunnels, o.Tunnels) }
