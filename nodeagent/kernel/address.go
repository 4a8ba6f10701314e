package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// Addresses is the kind of the addresses on our devices. Every address there is ours, except IPv6
// link-local ones, which the kernel adds.
type Addresses struct{ ns *Namespace }

// NewAddresses returns the kind.
func NewAddresses(ns *Namespace) *Addresses { return &Addresses{ns: ns} }

// Name returns "address".
func (*Addresses) Name() string { return "address" }

// Observe returns the addresses on our devices.
func (k *Addresses) Observe(ctx context.Context) ([]desired.Address, error) {
	if err := checkContext(ctx, "list addresses"); err != nil {
		return nil, err
	}
	links, err := k.ns.links()
	if err != nil {
		return nil, err
	}
	names := linkNames(links)
	list, err := dump(func() ([]netlink.Addr, error) { return k.ns.route.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []desired.Address
	for _, a := range list {
		prefix := fromNet(a.IPNet)
		name, ours := names[a.LinkIndex]
		if !ours || prefix.Addr().Is6() && prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		scope := scopeName(a.Scope)
		if prefix.Addr().Is6() { // the scope of an IPv6 address follows from the address
			scope = "global"
			if a.Flags&unix.IFA_F_DEPRECATED != 0 {
				scope = scopeLink
			}
		}
		out = append(out, desired.Address{Device: name, Prefix: prefix, Scope: scope})
	}
	return out, nil
}

// scopeLink prevents the kernel from choosing an address as source by itself. For IPv6, the kernel
// derives the scope from the address, so the scope cannot be set. There the preferred lifetime
// is 0: the kernel chooses a deprecated address last (RFC 6724, section 5, rule 3). Otherwise
// ICMP errors of a gateway about other nodes' packets would come from the address that every
// node has.
const scopeLink = "link"

// Apply adds and removes addresses.
func (k *Addresses) Apply(ctx context.Context, changes []diff.Change[desired.Address]) error {
	return converge.Each(ctx, changes, func(c diff.Change[desired.Address]) error {
		if c.Op != diff.Create {
			if err := k.remove(c.Have); err != nil {
				return err
			}
		}
		if c.Op == diff.Delete {
			return nil
		}
		scope, err := scopeNumber(c.Want.Scope)
		if err != nil {
			return err
		}
		l, err := k.ns.link(c.Want.Device)
		if err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: cidr.IPNet(c.Want.Prefix), Scope: scope}
		if c.Want.Prefix.Addr().Is6() {
			// The address is unique, and an address under duplicate detection cannot be used as
			// a route's source.
			addr.Flags = unix.IFA_F_NODAD
			if c.Want.Scope == scopeLink {
				addr.PreferedLft, addr.ValidLft = 0, math.MaxUint32 // infinite (rtnetlink(7), ifa_cacheinfo)
			}
		}
		if err := k.ns.route.AddrAdd(l, addr); err != nil {
			err = asConflict(err)
			return fmt.Errorf("add address %s to %s: %w", c.Want.Prefix, c.Want.Device, err)
		}
		return nil
	})
}

func (k *Addresses) remove(have desired.Address) error {
	l, err := k.ns.link(have.Device)
	if errors.As(err, new(converge.ErrBlocked)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.ns.route.AddrDel(l, &netlink.Addr{IPNet: cidr.IPNet(have.Prefix)}); err != nil && !isGone(err) {
		return fmt.Errorf("delete address %s of %s: %w", have.Prefix, have.Device, err)
	}
	return nil
}

func scopeName(scope int) string {
	switch scope {
	case unix.RT_SCOPE_UNIVERSE:
		return "global"
	case unix.RT_SCOPE_LINK:
		return "link"
	case unix.RT_SCOPE_HOST:
		return "host"
	}
	return strconv.Itoa(scope)
}

func scopeNumber(name string) (int, error) {
	switch name {
	case "global", "":
		return unix.RT_SCOPE_UNIVERSE, nil
	case "link":
		return unix.RT_SCOPE_LINK, nil
	case "host":
		return unix.RT_SCOPE_HOST, nil
	}
	return 0, fmt.Errorf("address scope %q is not global, link or host", name)
}
