package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// ESP manages the IPsec daemon. The daemon negotiates keys, and also encrypts if the kernel
// cannot.
type ESP interface {
	// Start starts the daemon in the current network namespace, on the UDP ports of IKE and of
	// IKE behind NAT, and returns when it responds. If the kernel lacks ESP, the daemon creates
	// the TUN device desired.IPsecDevice.
	Start(ctx context.Context, ike, nat int) error
	// Stop stops the daemon, unless another program manages it.
	Stop(ctx context.Context) error
	// Ports returns the ports of the daemon. ok is false if it does not run.
	Ports() (ike, nat int, ok bool)
	// InKernel reports whether the kernel encrypts.
	InKernel() bool
	// Managed reports whether the agent creates the daemon and its TUN device.
	Managed() bool
}

func (k *Devices) createIPsec(ctx context.Context, want desired.Device) error {
	if k.esp == nil {
		return fmt.Errorf("add IPsec device %s: no daemon", want.Name)
	}
	if k.esp.InKernel() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Group = want.Name, linkGroup
		if err := k.ns.route.LinkAdd(&netlink.Xfrmi{LinkAttrs: attrs, Ifid: desired.IPsecIfID}); err != nil {
			return fmt.Errorf("add xfrm interface %s: %w", want.Name, asConflict(err))
		}
	}
	if err := k.ns.inside(func() error { return k.esp.Start(ctx, want.IKEPort, want.Port) }); err != nil {
		return fmt.Errorf("start daemon of %s: %w", want.Name, err)
	}
	if k.esp.InKernel() {
		return nil
	}
	l, err := k.ns.route.LinkByName(want.Name)
	if err != nil {
		return fmt.Errorf("find tun device %s of the daemon: %w", want.Name, err)
	}
	if err := k.ns.route.LinkSetGroup(l, linkGroup); err != nil {
		return fmt.Errorf("set group of %s: %w", want.Name, err)
	}
	return k.setQueueLength(want.Name, ipsecQueue)
}

// ipsecQueue is the queue length, in packets, of the TUN device of a charon that encrypts
// itself.
const ipsecQueue = 5000

// blocksCreation reports whether an existing device prevents the creation of want.
func (k *Devices) blocksCreation(want desired.Device) bool {
	return want.Type != desired.DeviceIPsec || k.esp == nil || k.esp.Managed() || k.esp.InKernel()
}

// releaseIPsec stops the daemon; its TUN device disappears with it. If another program manages the
// daemon, its device loses our marks. mustDelete reports whether the caller has to delete the
// device.
func (k *Devices) releaseIPsec(ctx context.Context, name string) (mustDelete bool, err error) {
	if k.esp == nil {
		return true, nil
	}
	if err := k.esp.Stop(ctx); err != nil {
		return false, err
	}
	l, err := k.ns.link(name)
	if errors.As(err, new(converge.ErrBlocked)) {
		return false, nil
	}
	if err != nil || k.esp.Managed() || k.esp.InKernel() {
		return err == nil, err
	}
	if err := errors.Join(k.ns.route.LinkSetAlias(l, ""), k.ns.route.LinkSetGroup(l, 0)); err != nil {
		return false, fmt.Errorf("remove our marks from %s: %w", name, err)
	}
	return false, nil
}
