package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
)

// Rules that block packets for some milliseconds. Their protocol differs from the agent's other
// rules, which the engine deletes if they are not desired.
const (
	blockPriority = 7298
	blockProtocol = 74
)

// blockIngress drops packets from the clusters of the changes to the pods. unblock removes the
// rules; call it also after an error.
func blockIngress(changes []*linkChange, pods []netip.Prefix) (unblock func(), err error) {
	var rules []*netlink.Rule
	unblock = func() {
		for _, r := range rules {
			_ = netlink.RuleDel(r)
		}
	}
	for _, change := range changes {
		if change.fromNodesOnly {
			continue
		}
		for _, from := range change.prefixes {
			for _, to := range pods {
				if from.Addr().Is4() != to.Addr().Is4() {
					continue
				}
				r := netlink.NewRule()
				r.Family = netlink.FAMILY_V4
				if from.Addr().Is6() {
					r.Family = netlink.FAMILY_V6
				}
				r.Priority, r.Protocol, r.Type = blockPriority, blockProtocol, unix.RTN_BLACKHOLE
				r.Src, r.Dst = cidr.IPNet(from), cidr.IPNet(to)
				if err := netlink.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
					return unblock, fmt.Errorf("block traffic from %s to %s: %w", from, to, err)
				}
				rules = append(rules, r)
			}
		}
	}
	return unblock, nil
}

// RemoveStaleRules removes and returns the rules of an agent that was killed while it blocked
// packets. It works in the network namespace of the calling thread.
func RemoveStaleRules() (removed []string, errs error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(family)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("list rules: %w", err))
			continue
		}
		for _, r := range rules {
			if r.Protocol != blockProtocol || r.Priority != blockPriority {
				continue
			}
			r.Family = family
			if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = errors.Join(errs, fmt.Errorf("delete rule %s: %w", r, err))
				continue
			}
			removed = append(removed, fmt.Sprintf("%d from %s to %s", r.Priority, r.Src, r.Dst))
		}
	}
	return removed, errs
}
