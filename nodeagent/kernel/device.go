package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// Userspace runs WireGuard devices outside the kernel.
type Userspace interface {
	// Start creates a device with that name in the current network namespace and returns when
	// it responds.
	Start(ctx context.Context, name string) error
	// Alive reports whether a process serves the device.
	Alive(name string) bool
}

// Devices is the kind of our network devices: their names begin with hw- and their alias is
// hawser.
type Devices struct {
	ns        *Namespace
	userspace Userspace
	esp       ESP
}

// NewDevices returns the kind. userspace runs WireGuard devices if the kernel has no WireGuard;
// if nil, creating them fails.
func NewDevices(ns *Namespace, userspace Userspace) *Devices {
	return &Devices{ns: ns, userspace: userspace}
}

// WithESP also enables IPsec devices.
func (k *Devices) WithESP(esp ESP) *Devices {
	k.esp = esp
	return k
}

// Name returns "link".
func (*Devices) Name() string { return "link" }

// Observe returns our devices.
func (k *Devices) Observe(ctx context.Context) ([]desired.Device, error) {
	if err := checkContext(ctx, "list links"); err != nil {
		return nil, err
	}
	list, err := k.ns.links()
	if err != nil {
		return nil, err
	}
	out := make([]desired.Device, len(list))
	for i, l := range list {
		out[i] = k.read(l)
	}
	return out, nil
}

func (k *Devices) read(l netlink.Link) desired.Device {
	a := l.Attrs()
	out := desired.Device{Name: a.Name, Type: l.Type(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0}
	if a.Name == desired.IPsecDevice {
		// A device without its daemon, or of the wrong implementation for this kernel, gets a
		// type that is never desired. So it is replaced.
		out.Type = "ipsec without daemon"
		if k.esp != nil {
			ike, nat, ok := k.esp.Ports()
			if _, tun := l.(*netlink.Tuntap); ok && tun != k.esp.InKernel() {
				out.Type, out.IKEPort, out.Port = desired.DeviceIPsec, ike, nat
			}
		}
		return out
	}
	switch l := l.(type) {
	case *netlink.Vxlan:
		out.MAC, out.VNI, out.Port, out.Local = a.HardwareAddr.String(), l.VxlanId, l.Port, fromIP(l.SrcAddr)
		if l.Learning {
			// Hawser disables learning: a type that is never desired replaces the device.
			out.Type = "vxlan with learning"
		}
	case *netlink.Tuntap:
		out.Type = desired.DeviceWireguard
		if k.userspace == nil || !k.userspace.Alive(a.Name) {
			out.Type = "tun without process"
		}
	}
	return out
}

// Normalize ignores hardware address and MTU if none is desired, and the ports of a daemon that
// another program manages.
func (k *Devices) Normalize(want, have desired.Device) desired.Device {
	if want.Type == desired.DeviceIPsec && k.esp != nil && !k.esp.Managed() {
		want.Port, want.IKEPort = have.Port, have.IKEPort
	}
	if want.MAC == "" || strings.EqualFold(want.MAC, have.MAC) {
		want.MAC = have.MAC
	}
	if want.MTU == 0 {
		want.MTU = have.MTU
	}
	return want
}

// Apply creates, changes and removes devices.
func (k *Devices) Apply(ctx context.Context, changes []diff.Change[desired.Device]) error {
	return converge.Each(ctx, changes, func(c diff.Change[desired.Device]) error {
		switch c.Op {
		case diff.Create:
			return k.create(ctx, c.Want)
		case diff.Update:
			return k.update(c.Want)
		case diff.Replace:
			if err := k.remove(ctx, c.Key); err != nil {
				return err
			}
			return k.create(ctx, c.Want)
		default:
			return k.remove(ctx, c.Key)
		}
	})
}

func (k *Devices) create(ctx context.Context, want desired.Device) error {
	_, err := k.ns.route.LinkByName(want.Name)
	if err == nil && k.blocksCreation(want) {
		return converge.ErrConflict
	}
	if err != nil && !isLinkNotFound(err) {
		return fmt.Errorf("find device %s: %w", want.Name, err)
	}
	switch want.Type {
	case desired.DeviceVXLAN:
		err = k.createVXLAN(want)
	case desired.DeviceWireguard:
		err = k.createWireguard(ctx, want)
	case desired.DeviceIPsec:
		err = k.createIPsec(ctx, want)
	default:
		return fmt.Errorf("device %s: unknown type %q", want.Name, want.Type)
	}
	if err != nil {
		return err
	}
	return k.update(want)
}

func (k *Devices) createVXLAN(want desired.Device) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Group = want.Name, want.MTU, linkGroup
	if want.MAC != "" {
		mac, err := net.ParseMAC(want.MAC)
		if err != nil {
			return fmt.Errorf("device %s: %w", want.Name, err)
		}
		attrs.HardwareAddr = mac
	}
	vxlan := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: want.VNI, Port: want.Port, SrcAddr: toIP(want.Local)}
	if err := k.ns.route.LinkAdd(vxlan); err != nil {
		// The name was free just before, so EEXIST means that another device has this VNI and
		// port.
		return fmt.Errorf("add vxlan %s with VNI %d, port %d: %w", want.Name, want.VNI, want.Port, asConflict(err))
	}
	return nil
}

func (k *Devices) createWireguard(ctx context.Context, want desired.Device) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group = want.Name, linkGroup
	err := k.ns.route.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	if !errors.Is(err, unix.EOPNOTSUPP) {
		if err != nil {
			return fmt.Errorf("add wireguard %s: %w", want.Name, asConflict(err))
		}
		return nil
	}
	if k.userspace == nil {
		return fmt.Errorf("add wireguard %s: the kernel does not support it: %w", want.Name, err)
	}
	if err := k.ns.inside(func() error { return k.userspace.Start(ctx, want.Name) }); err != nil {
		return fmt.Errorf("start userspace wireguard %s: %w", want.Name, err)
	}
	return k.setQueueLength(want.Name, wireguardQueue)
}

// wireguardQueue is the queue length, in packets, of a userspace WireGuard device. It is less
// than ipsecQueue: the process reads packets in batches, and a long queue delays the packets in
// it.
const wireguardQueue = 2000

// setQueueLength sets the queue length of a TUN device. The default of 500 packets overflows within
// a fraction of a second while the process does not run.
func (k *Devices) setQueueLength(name string, packets int) error {
	l, err := k.ns.route.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find tun device %s: %w", name, err)
	}
	if err := k.ns.route.LinkSetTxQLen(l, packets); err != nil {
		return fmt.Errorf("set queue of %s: %w", name, err)
	}
	return nil
}

// update sets the changeable attributes of an existing device as in want.
func (k *Devices) update(want desired.Device) error {
	l, err := k.ns.link(want.Name)
	if err != nil {
		return err
	}
	a := l.Attrs()
	if a.Alias != desired.DeviceAlias {
		if err := k.ns.route.LinkSetAlias(l, desired.DeviceAlias); err != nil {
			return fmt.Errorf("set alias of %s: %w", want.Name, err)
		}
	}
	if want.MTU != 0 && a.MTU != want.MTU {
		if err := k.ns.route.LinkSetMTU(l, want.MTU); err != nil {
			return fmt.Errorf("set mtu %d of %s: %w", want.MTU, want.Name, err)
		}
	}
	if want.MAC != "" && !strings.EqualFold(a.HardwareAddr.String(), want.MAC) {
		mac, err := net.ParseMAC(want.MAC)
		if err != nil {
			return fmt.Errorf("device %s: %w", want.Name, err)
		}
		if err := k.ns.route.LinkSetHardwareAddr(l, mac); err != nil {
			return fmt.Errorf("set hardware address %s of %s: %w", want.MAC, want.Name, err)
		}
	}
	name := l.Attrs().Name
	if want.Up == (l.Attrs().Flags&net.FlagUp != 0) {
		return nil
	}
	if !want.Up {
		if err := k.ns.route.LinkSetDown(l); err != nil {
			return fmt.Errorf("set %s down: %w", name, err)
		}
		return nil
	}
	if err := k.ns.route.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func (k *Devices) remove(ctx context.Context, name string) error {
	if name == desired.IPsecDevice {
		if mustDelete, err := k.releaseIPsec(ctx, name); err != nil || !mustDelete {
			return err
		}
	}
	l, err := k.ns.link(name)
	if errors.As(err, new(converge.ErrBlocked)) {
		return nil // gone, or replaced by a foreign device
	}
	if err != nil {
		return err
	}
	if err := k.ns.route.LinkDel(l); err != nil && !isGone(err) {
		return fmt.Errorf("delete device %s: %w", name, err)
	}
	return nil
}
