package kernel

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loadBPF loads a program that lets all packets pass: XDP_PASS or TC_ACT_OK.
func loadBPF(t *testing.T, program, returns uint32) int {
	t.Helper()
	code := []uint64{0xb7 | uint64(returns)<<32, 0x95} // r0 = returns; exit
	license := []byte("Apache-2.0\x00")
	load := struct { // the member of union bpf_attr for BPF_PROG_LOAD
		program, count uint32
		code, license  uint64
	}{
		program: program, count: uint32(len(code)), code: uint64(uintptr(unsafe.Pointer(&code[0]))),
		license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	runtime.KeepAlive(code)
	runtime.KeepAlive(license)
	if errno != 0 {
		skipOrFail(t, "BPF programs: "+errno.Error())
	}
	t.Cleanup(func() { _ = unix.Close(int(fd)) })
	return int(fd)
}

// linkBPF attaches a program to a device of the current namespace until the returned file is
// closed.
func linkBPF(program, device int, attach uint32) (int, error) {
	link := struct { // the member link_create of union bpf_attr
		program, target, attach, flags uint32
	}{program: uint32(program), target: uint32(device), attach: attach}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(&link)), unsafe.Sizeof(link))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// TestUnderlayProgram attaches a BPF program to the node's device, or to one below it. The program
// may translate packets of pods. So the device is unsuitable for direct packets until the program
// is detached.
func TestUnderlayProgram(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.ip("link add eth0 type veth peer name far0", "link add link eth0 name mac0 type macvlan",
		"link add br0 type bridge", "link add eth1 type veth peer name far1", "link set eth1 master br0",
		"link add link br0 name mac1 type macvlan")
	devices := []string{"eth0", "mac0", "br0", "mac1"}
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.3.1"), netip.MustParseAddr("192.0.4.1"), netip.MustParseAddr("192.0.5.1")}
	for i, device := range devices {
		ns.address(device, addrs[i].String()+"/24")
	}
	// unsuitable returns the devices with a program.
	unsuitable := func() string {
		t.Helper()
		var out []string
		ns.inside(func() {
			have, err := UnderlayAddrs(addrs)
			ns.must(err, "read addresses")
			if len(have) != len(addrs) {
				t.Errorf("%d addresses", len(have))
			}
			for _, u := range have {
				if strings.HasSuffix(u.Unsuitable, " has a BPF program, which may translate packets of pods") {
					out = append(out, u.Device)
				} else if u.Unsuitable != "" {
					t.Errorf("%s is unsuitable: %s", u.Device, u.Unsuitable)
				}
			}
		})
		return strings.Join(out, " ")
	}
	const pass, ok = 2, 0
	tc, xdp := loadBPF(t, unix.BPF_PROG_TYPE_SCHED_CLS, ok), loadBPF(t, unix.BPF_PROG_TYPE_XDP, pass)
	filter := func(parent uint32) func(netlink.Link) (func() error, error) {
		return func(link netlink.Link) (func() error, error) {
			qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}}
			if err := netlink.QdiscAdd(qdisc); err != nil {
				return nil, err
			}
			return func() error { return netlink.QdiscDel(qdisc) }, netlink.FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: parent, Protocol: unix.ETH_P_ALL, Priority: 1},
				Fd:          tc, Name: "pass", DirectAction: true,
			})
		}
	}
	generic := func(mode int) func(netlink.Link) (func() error, error) {
		return func(link netlink.Link) (func() error, error) {
			return func() error { return netlink.LinkSetXdpFdWithFlags(link, -1, mode) }, netlink.LinkSetXdpFdWithFlags(link, xdp, mode)
		}
	}
	attached := func(program int, attach uint32) func(netlink.Link) (func() error, error) {
		return func(link netlink.Link) (func() error, error) {
			fd, err := linkBPF(program, link.Attrs().Index, attach)
			return func() error { return unix.Close(fd) }, err
		}
	}
	for _, tt := range []struct {
		name   string
		attach func(netlink.Link) (detach func() error, err error)
		since  string // kernel; empty = any
	}{
		{name: "XDP of the driver", attach: generic(nlXDPDriver)},
		{name: "generic XDP", attach: generic(nlXDPGeneric)},
		{name: "XDP link", attach: attached(xdp, unix.BPF_XDP)},
		{name: "tc ingress", attach: filter(netlink.HANDLE_MIN_INGRESS)},
		{name: "tc egress", attach: filter(netlink.HANDLE_MIN_EGRESS)},
		{name: "TCX ingress", attach: attached(tc, bpfTCXIngress), since: "6.6"},
		{name: "TCX egress", attach: attached(tc, bpfTCXEgress), since: "6.6"},
	} {
		for device, want := range map[string]string{"eth0": "eth0 mac0", "eth1": "br0 mac1", "mac0": "mac0", "br0": "br0 mac1"} {
			if strings.Contains(tt.name, "XDP") && device != "eth0" && device != "eth1" {
				continue // not every such device has XDP
			}
			link := ns.link(device)
			var detach func() error
			var err error
			ns.inside(func() { detach, err = tt.attach(link) })
			if err != nil && tt.since != "" {
				skipOrFail(t, tt.name+" (Linux "+tt.since+"): "+err.Error())
			}
			ns.must(err, "attach "+tt.name+" to "+device)
			if have := unsuitable(); have != want {
				t.Errorf("%s on %s: unsuitable are %q, want %q", tt.name, device, have, want)
			}
			ns.inside(func() { err = detach() })
			ns.must(err, "detach "+tt.name+" from "+device)
			if have := unsuitable(); have != "" {
				t.Errorf("%s on %s: unsuitable after it was detached: %q", tt.name, device, have)
			}
		}
	}
}

// XDP_FLAGS_SKB_MODE and XDP_FLAGS_DRV_MODE (linux/if_link.h).
const (
	nlXDPGeneric = 1 << 1
	nlXDPDriver  = 1 << 2
)
