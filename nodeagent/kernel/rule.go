package kernel

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// Rules is the kind of the routing policy rules of protocol 73.
type Rules struct{ ns *Namespace }

// NewRules returns the kind.
func NewRules(ns *Namespace) *Rules { return &Rules{ns: ns} }

// Name returns "rule".
func (*Rules) Name() string { return "rule" }

// foreignAttributes marks an object with attributes that its spec cannot express. It differs from
// every desired object and is written again.
const foreignAttributes = "altered"

// Observe returns the rules of protocol 73 of both families.
func (k *Rules) Observe(ctx context.Context) ([]desired.Rule, error) {
	if err := checkContext(ctx, "list rules"); err != nil {
		return nil, err
	}
	var out []desired.Rule
	indexByKey := map[string]int{}
	for _, family := range k.ns.families() {
		list, err := dump(func() ([]netlink.Rule, error) { return k.ns.route.RuleList(family) })
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range list {
			if r.Protocol != desired.RouteProtocol {
				continue
			}
			rule := desired.Rule{Priority: r.Priority, IPv6: family == netlink.FAMILY_V6, IIF: r.IifName, OIF: r.OifName, Mark: r.Mark, Table: r.Table}
			if r.Mask != nil {
				rule.Mask = *r.Mask
			}
			if r.Goto >= 0 {
				rule.Goto, rule.Table = r.Goto, 0
			}
			if readPorts(&r, &rule); hasForeignSelector(r) {
				markForeign(&rule)
			}
			if i, duplicate := indexByKey[rule.Key()]; duplicate {
				markForeign(&out[i])
				continue
			}
			indexByKey[rule.Key()] = len(out)
			out = append(out, rule)
		}
	}
	return out, nil
}

// markForeign changes the fields of a rule outside its key, so that it differs from the desired
// rule.
func markForeign(r *desired.Rule) {
	if r.Priority == desired.RuleTunnel || r.Priority == desired.RuleReturn {
		r.Table, r.Goto = 0, 0
	} else {
		r.IIF = foreignAttributes
	}
}

// hasForeignSelector reports whether a rule has a selector or action that Hawser never sets.
func hasForeignSelector(r netlink.Rule) bool {
	return r.Src != nil || r.Dst != nil || r.Invert || r.Tos != 0 ||
		r.IPProto != 0 || r.Dport != nil || r.Sport != nil || r.UIDRange != nil || r.SuppressPrefixlen >= 0
}

// readPorts sets the single port of a rule from its kernel attributes.
func readPorts(r *netlink.Rule, rule *desired.Rule) {
	to, from := singlePort(r.Dport), singlePort(r.Sport)
	switch {
	case r.IPProto == unix.IPPROTO_UDP && to > 0 && r.Sport == nil:
		rule.UDPPort = to
	case r.IPProto == unix.IPPROTO_TCP && to > 0 && r.Sport == nil:
		rule.TCPPort = to
	case r.IPProto == unix.IPPROTO_TCP && from > 0 && r.Dport == nil:
		rule.TCPFrom = from
	default:
		return
	}
	r.IPProto, r.Dport, r.Sport = 0, nil, nil
}

// singlePort returns the port of a range that contains one port, and 0 for other ranges.
func singlePort(ports *netlink.RulePortRange) int {
	if ports == nil || ports.Start != ports.End {
		return 0
	}
	return int(ports.Start)
}

// writePorts is the inverse of readPorts.
func writePorts(r *netlink.Rule, want desired.Rule) {
	port := func(n int) *netlink.RulePortRange { return netlink.NewRulePortRange(uint16(n), uint16(n)) }
	switch {
	case want.UDPPort > 0:
		r.IPProto, r.Dport = unix.IPPROTO_UDP, port(want.UDPPort)
	case want.TCPPort > 0:
		r.IPProto, r.Dport = unix.IPPROTO_TCP, port(want.TCPPort)
	case want.TCPFrom > 0:
		r.IPProto, r.Sport = unix.IPPROTO_TCP, port(want.TCPFrom)
	}
}

// Apply adds and removes rules. A rule never changes in place.
func (k *Rules) Apply(ctx context.Context, changes []diff.Change[desired.Rule]) error {
	return converge.Each(ctx, changes, func(c diff.Change[desired.Rule]) error {
		if c.Op == diff.Delete {
			return k.remove(c.Have)
		}
		if c.Op != diff.Create {
			if err := k.remove(c.Have); err != nil {
				return err
			}
		}
		if err := k.ns.route.RuleAdd(k.rule(c.Want)); err != nil {
			return fmt.Errorf("add rule %s: %w", c.Key, asConflict(err))
		}
		return nil
	})
}

func (k *Rules) rule(want desired.Rule) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Protocol = netlink.FAMILY_V4, want.Priority, desired.RouteProtocol
	if want.IPv6 {
		r.Family = netlink.FAMILY_V6
	}
	r.IifName, r.OifName, r.Table = want.IIF, want.OIF, want.Table
	if want.Mask != 0 {
		r.Mark, r.Mask = want.Mark, &want.Mask
	}
	if want.Goto > 0 {
		r.Goto = want.Goto
	}
	writePorts(r, want)
	return r
}

// remove deletes every rule of ours at that priority. If several rules share the priority, it
// deletes the rule of the device. The kernel deletes the first rule that matches all given
// attributes. Without a device this may be any of them: then all are deleted, and the next pass
// writes the desired ones again.
func (k *Rules) remove(have desired.Rule) error {
	match := k.rule(desired.Rule{Priority: have.Priority, IPv6: have.IPv6})
	switch {
	case have.Priority == desired.RuleTunnel, have.Priority == desired.RuleReturn:
		match.IifName = have.IIF
	case have.Priority >= desired.RuleReturnPath && have.Priority <= desired.RuleReturnPathEnd && have.Mask != 0:
		match.Mark, match.Mask = have.Mark, &have.Mask
	}
	for {
		err := k.ns.route.RuleDel(match)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete rule %s: %w", have.Key(), err)
		}
	}
}
