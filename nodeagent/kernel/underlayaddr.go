package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/model"
)

// UnderlayAddrs returns the addresses of a node that the current network namespace has, with their
// devices and the networks that these reach without a router.
func UnderlayAddrs(addrs []netip.Addr) ([]model.UnderlayAddr, error) {
	hostAddrs, err := hostAddresses()
	if err != nil {
		return nil, err
	}
	routes, err := routesIn(netlink.FAMILY_ALL, unix.RT_TABLE_MAIN)
	if err != nil {
		return nil, err
	}
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []model.UnderlayAddr
	for _, a := range addrs {
		link, exists := hostAddrs[a]
		if !exists {
			continue
		}
		attrs := link.Attrs()
		u := model.UnderlayAddr{Addr: a, Device: attrs.Name, MAC: attrs.HardwareAddr.String()}
		for _, r := range routes {
			to, ok := prefixOf(r.Dst)
			if ok && r.LinkIndex == attrs.Index && r.Type == unix.RTN_UNICAST && r.Gw == nil && r.Via == nil && to.Addr().Is4() == a.Is4() &&
				!to.Addr().IsLinkLocalUnicast() {
				u.Networks = append(u.Networks, to.Masked())
			}
		}
		slices.SortFunc(u.Networks, netip.Prefix.Compare)
		u.Networks = slices.Compact(u.Networks)
		if u.Unsuitable, err = unsuitableReason(link, links); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// unsuitableReason returns why test packets do not prove that packets of pods pass a device; empty
// if they do. A BPF program may translate packets by their pod (Cilium), and test packets have
// none.
func unsuitableReason(link netlink.Link, links []netlink.Link) (string, error) {
	if attrs := link.Attrs(); len(attrs.HardwareAddr) != 6 {
		return attrs.Name + " has no Ethernet address", nil
	}
	for _, l := range append(lowerLinks(link, links), link) {
		if why, err := translationReason(l); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// lowerLinks returns the links that packets of a link pass: the device of a VLAN or macvlan, and the
// members of a bond or bridge.
func lowerLinks(link netlink.Link, links []netlink.Link) []netlink.Link {
	attrs := link.Attrs()
	parent := 0
	if slices.Contains([]string{"vlan", "macvlan", "ipvlan"}, link.Type()) && attrs.NetNsID < 0 {
		parent = attrs.ParentIndex
	}
	var out []netlink.Link
	for _, l := range links {
		if a := l.Attrs(); a.Index == parent || a.MasterIndex == attrs.Index {
			out = append(append(out, l), lowerLinks(l, links)...)
		}
	}
	return out
}

// translationReason returns why a device may translate packets of pods; empty if it cannot.
func translationReason(link netlink.Link) (string, error) {
	attrs := link.Attrs()
	program := attrs.Name + " has a BPF program, which may translate packets of pods"
	if attrs.Xdp != nil && attrs.Xdp.Attached {
		return program, nil
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := dump(func() ([]netlink.Filter, error) { return netlink.FilterList(link, parent) })
		if err != nil {
			return "", fmt.Errorf("list filters of %s: %w", attrs.Name, err)
		}
		if slices.ContainsFunc(filters, func(f netlink.Filter) bool { return f.Type() == "bpf" }) {
			return program, nil
		}
	}
	for _, attach := range []uint32{bpfTCXIngress, bpfTCXEgress} {
		count, err := bpfPrograms(attrs.Index, attach)
		switch {
		case errors.Is(err, unix.EPERM) && !kernelHasTCX():
		case errors.Is(err, unix.EPERM):
			return "the agent may not list the BPF programs of " + attrs.Name, nil
		case err != nil:
			return "", fmt.Errorf("list BPF programs of %s: %w", attrs.Name, err)
		case count > 0:
			return program, nil
		}
	}
	return "", nil
}

// Attach types of enum bpf_attach_type (linux/bpf.h).
const (
	bpfTCXIngress = 46
	bpfTCXEgress  = 47
)

// kernelHasTCX reports whether the kernel has TCX: Linux 6.6, or an older kernel with a backport. It
// reports true if the symbols of the kernel cannot be read.
func kernelHasTCX() bool {
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return true
	}
	defer func() { _ = file.Close() }()
	lines, any := bufio.NewScanner(file), false
	for lines.Scan() {
		any = true
		if bytes.HasSuffix(lines.Bytes(), []byte(" tcx_prog_query")) {
			return true
		}
	}
	return !any || lines.Err() != nil
}

// bpfPrograms returns the number of BPF programs of an attach type on a device. A kernel before 6.6
// has no TCX, and so no programs.
func bpfPrograms(index int, attach uint32) (uint32, error) {
	query := struct { // the member query of union bpf_attr
		target, attachType, flags, attachFlags uint32
		ids                                    uint64
		count, _                               uint32
		attachFlagsOf, linkIDs, linkFlags      uint64
		revision                               uint64
	}{target: uint32(index), attachType: attach}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	switch errno {
	case 0:
		return query.count, nil
	case unix.EINVAL, unix.ENOENT, unix.ENOSYS, unix.E2BIG:
		return 0, nil
	}
	return 0, errno
}
