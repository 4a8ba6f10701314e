package lab

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/cidr"
)

// become makes of a running node what the topology says of it now: it gets the
// card of a gateway, or other addresses there. A card that it has stays.
func (m *machine) become(n node, u *underlay) error {
	if n.card && !m.spec.card {
		if err := u.plug(&n, m.space); err != nil {
			return fmt.Errorf("node %s: %w", n.id(), err)
		}
		m.spec.card = true
		m.packets = false
	}
	for _, addr := range m.spec.wan {
		if slices.Contains(n.wan, addr) {
			continue
		}
		if err := m.space.unaddress("wan0", cidr.Single(addr)); err != nil {
			return fmt.Errorf("node %s: %w", n.id(), err)
		}
	}
	if err := m.addWAN(n.wan); err != nil {
		return fmt.Errorf("node %s: %w", n.id(), err)
	}
	m.spec = n
	return nil
}

// setPackets decides whether large segments leave the node as they are or cut to
// packets, which a link that judges by length needs.
func (m *machine) setPackets(packets bool) error {
	if m.packets == packets {
		return nil
	}
	segments := mostSegments
	if packets {
		segments = 1
	}
	names := []string{"eth0"}
	if m.spec.card {
		names = append(names, "wan0")
	}
	for _, name := range names {
		link, err := m.space.link.LinkByName(name)
		if err == nil {
			err = m.space.link.LinkSetGSOMaxSegs(link, segments)
		}
		if err != nil {
			return fmt.Errorf("node %s: set segments of %s: %w", m.spec.id(), name, err)
		}
	}
	m.packets = packets
	return nil
}
