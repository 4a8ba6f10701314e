package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Sides of a node: which of its two links a fault concerns.
const (
	SideWAN = "wan"
	SideLAN = "lan"
)

// underlay is everything between the nodes: one namespace with a bridge for the
// wide area, where gateways have their endpoints, and one bridge a cluster for
// its nodes' network. It forwards nothing.
type underlay struct {
	*space
	lans   map[int]bool         // bridges by cluster number
	faults map[string]linkFault // in force, by port
	delays map[string]*delayer  // by port
	loss   string               // rules in force
}

func newUnderlay(path string) (*underlay, error) {
	s, err := newSpace(path, bridgeSettings())
	if err != nil {
		return nil, err
	}
	u := &underlay{space: s, lans: map[int]bool{}, faults: map[string]linkFault{}, delays: map[string]*delayer{}}
	if err := u.bridge("wan"); err != nil {
		return nil, errors.Join(err, u.close())
	}
	return u, nil
}

// lan makes a cluster's bridge once; it answers ARP for the nodes' default
// gateway, the first address of the range, and drops what they send there.
func (u *underlay) lan(number int, gateways []netip.Addr) error {
	if u.lans[number] {
		return nil
	}
	name := lanBridge(number)
	if err := u.bridge(name); err != nil {
		return err
	}
	for _, addr := range gateways {
		if err := u.address(name, host(addr)); err != nil {
			return err
		}
	}
	u.lans[number] = true
	return nil
}

func lanBridge(number int) string { return fmt.Sprintf("lan%d", number) }

// port names the underlay's end of a node's link.
func port(n *node, side string) string { return fmt.Sprintf("%c%d", side[0], n.number) }

// attach wires a node's eth0 to its cluster's bridge and, for a gateway, wan0 to
// the wide area.
func (u *underlay) attach(n *node, clusterNumber int, into *space) error {
	if err := pair(u.space, port(n, SideLAN), into, "eth0"); err != nil {
		return err
	}
	if err := u.enslave(port(n, SideLAN), lanBridge(clusterNumber)); err != nil {
		return err
	}
	if !n.gateway {
		return nil
	}
	if err := pair(u.space, port(n, SideWAN), into, "wan0"); err != nil {
		return err
	}
	return u.enslave(port(n, SideWAN), "wan")
}

// detach removes a node's links and what was between them.
func (u *underlay) detach(n *node) error {
	var errs []error
	for _, side := range []string{SideLAN, SideWAN} {
		name := port(n, side)
		if d := u.delays[name]; d != nil {
			errs = append(errs, d.close())
			delete(u.delays, name)
		}
		delete(u.faults, name)
		errs = append(errs, u.remove(name))
	}
	return errors.Join(errs...)
}

// setFault brings one port to the wanted fault; the zero value heals it.
func (u *underlay) setFault(name, bridge string, want linkFault) error {
	have := u.faults[name]
	if have == want {
		return nil
	}
	if have.Delay != want.Delay {
		if err := u.setDelay(name, bridge, want); err != nil {
			return err
		}
	}
	if have.Cut != want.Cut {
		set := u.up
		if want.Cut {
			set = u.down
		}
		if err := set(name); err != nil {
			return err
		}
	}
	u.faults[name] = want
	return u.setLoss()
}

func (u *underlay) setDelay(name, bridge string, want linkFault) error {
	if d := u.delays[name]; d != nil {
		if want.Delay > 0 {
			d.set(want.Delay)
			return nil
		}
		delete(u.delays, name)
		return errors.Join(d.close(), u.enslave(name, bridge))
	}
	d, err := newDelayer(u.space, name, bridge, want.Delay)
	if err != nil {
		return err
	}
	u.delays[name] = d
	return nil
}

// setLoss loads the rules that drop packets at random on lossy ports.
func (u *underlay) setLoss() error {
	text := lossRules(u.faults)
	if text == u.loss {
		return nil
	}
	if err := loadRules(u.path, text); err != nil {
		return err
	}
	u.loss = text
	return nil
}

func lossRules(faults map[string]linkFault) string {
	var drops []string
	for name, fault := range faults {
		if fault.Loss <= 0 {
			continue
		}
		// A port with a delay is not on the bridge: its stand-in is.
		on := name
		if fault.Delay > 0 {
			on = standIn(name)
		}
		verdict := fmt.Sprintf("numgen random mod 10000 < %d drop", int(fault.Loss*10000))
		if fault.Loss >= 1 {
			verdict = "drop" // nft refuses a comparison that is always true
		}
		for _, way := range []string{"iifname", "oifname"} {
			drops = append(drops, fmt.Sprintf("%s %q %s", way, on, verdict))
		}
	}
	slices.Sort(drops)
	var out strings.Builder
	out.WriteString("table bridge lab\ndelete table bridge lab\ntable bridge lab {\n")
	chain(&out, "forward", "type filter hook forward priority 0", drops)
	out.WriteString("}\n")
	return out.String()
}
