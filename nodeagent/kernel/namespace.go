// Package kernel implements the kinds that converge writes into the Linux kernel: sysctls,
// links, addresses, neighbours, rules, routes, WireGuard devices and peers, and the nftables
// table. Each kind reads and changes only objects with Hawser's mark.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
)

// Namespace is an open handle on one network namespace. Kinds created from it work there,
// regardless of the namespace of the calling thread. It is not safe for concurrent use.
type Namespace struct {
	path       string
	route      *netlink.Handle
	wg         *userspacewg.Control
	wgSnapshot *deviceSnapshot // of the WireGuard devices; nil if none can be reused
	// events counts events since the namespace was opened.
	events         *routeEvents
	remoteCounters nftConn // of RemotePackets, which runs several times a second
}

// Open opens the network namespace at path, such as /run/netns/g1. An empty path means the
// current one.
func Open(path string) (*Namespace, error) {
	ns := &Namespace{path: path}
	err := ns.inside(func() (err error) {
		if ns.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		if ns.wg, err = userspacewg.OpenControl(); err != nil {
			ns.route.Close()
			return err
		}
		if ns.events, err = openRouteEvents(); err != nil {
			ns.route.Close()
			return errors.Join(err, ns.wg.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// Close releases the handle. It changes nothing in the kernel.
func (ns *Namespace) Close() error {
	ns.route.Close()
	return errors.Join(ns.wg.Close(), ns.events.close(), ns.remoteCounters.close())
}

// inside runs f on a thread in the namespace.
func (ns *Namespace) inside(f func() error) error {
	if ns.path == "" {
		return f()
	}
	runtime.LockOSThread()
	original, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open current network namespace: %w", err)
	}
	defer original.Close()
	target, err := netns.GetFromPath(ns.path)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace %s: %w", ns.path, err)
	}
	defer target.Close()
	if err := netns.Set(target); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", ns.path, err)
	}
	err = f()
	if restoreErr := netns.Set(original); restoreErr != nil {
		// The thread stays locked, so the runtime ends it with this goroutine and never runs
		// other code in the wrong namespace.
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", ns.path, restoreErr))
	}
	runtime.UnlockOSThread()
	return err
}

// linkGroup marks our devices at creation: the kernel accepts the group when it creates a device,
// but the alias only later.
const linkGroup = 73

// netlink returns our devices.
func (ns *Namespace) links() ([]netlink.Link, error) {
	all, err := dump(ns.route.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []netlink.Link
	for _, l := range all {
		if isOurs(l) {
			out = append(out, l)
		}
	}
	return out, nil
}

func isOurs(l netlink.Link) bool {
	a := l.Attrs()
	if !strings.HasPrefix(a.Name, desired.DevicePrefix) && a.Name != desired.IPsecDevice {
		return false
	}
	return a.Alias == desired.DeviceAlias || a.Alias == "" && a.Group == linkGroup
}

// linkNames maps the indices of devices to their names.
func linkNames(list []netlink.Link) map[int]string {
	names := make(map[int]string, len(list))
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names
}

// link returns one of our devices, or ErrBlocked while it does not exist.
func (ns *Namespace) link(name string) (netlink.Link, error) {
	l, err := ns.route.LinkByName(name)
	if isLinkNotFound(err) || err == nil && !isOurs(l) {
		return nil, converge.ErrBlocked{On: "link " + name}
	}
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", name, err)
	}
	return l, nil
}

// routeDevice returns the device of a route: ours, or the device of the node's network for direct
// packets.
func (ns *Namespace) routeDevice(name string) (netlink.Link, error) {
	if strings.HasPrefix(name, desired.DevicePrefix) || name == desired.IPsecDevice {
		return ns.link(name)
	}
	l, err := ns.route.LinkByName(name)
	if isLinkNotFound(err) {
		return nil, converge.ErrBlocked{On: "link " + name}
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return l, nil
}

func isLinkNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV)
}

// dump repeats a netlink dump that the kernel marked as inconsistent because of a concurrent
// change.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	var out []T
	var err error
	for range 5 {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return nil, err
}

// isGone reports whether an error of a deletion means that the object does not exist.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) ||
		errors.Is(err, unix.EADDRNOTAVAIL)
}

// asConflict wraps EEXIST of a creation in ErrConflict.
func asConflict(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", converge.ErrConflict, err)
	}
	return err
}

func toIP(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

func fromIP(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func fromNet(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, bits := n.Mask.Size()
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	if bits == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones)
}

// families returns the address families that the kernel supports. A kernel started with
// ipv6.disable=1 refuses IPv6 requests, or answers them with IPv4.
func (ns *Namespace) families() []int {
	out := []int{netlink.FAMILY_V4}
	if err := ns.inside(func() error { _, err := os.Stat("/proc/sys/net/ipv6"); return err }); err == nil {
		out = append(out, netlink.FAMILY_V6)
	}
	return out
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// checkContext wraps ctx's error with the operation that was not started.
func checkContext(ctx context.Context, operation string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

func anyPrefix(family int) netip.Prefix {
	if family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
