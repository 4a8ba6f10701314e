package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
	"hawser.dev/hawser/schema/fabric"
)

// Wireguards is the kind of the WireGuard device configurations on our devices. A device without
// a private key counts as missing.
type Wireguards struct{ ns *Namespace }

// NewWireguards returns the kind.
func NewWireguards(ns *Namespace) *Wireguards { return &Wireguards{ns: ns} }

// Name returns "wireguard".
func (*Wireguards) Name() string { return "wireguard" }

// Observe returns the configured devices among our devices.
func (k *Wireguards) Observe(ctx context.Context) ([]desired.Wireguard, error) {
	devices, err := k.ns.devices(ctx)
	if err != nil {
		return nil, err
	}
	k.ns.wgSnapshot = &deviceSnapshot{devices: devices, at: time.Now()}
	var out []desired.Wireguard
	for _, d := range devices {
		if d.PrivateKey != (wgtypes.Key{}) {
			out = append(out, desired.Wireguard{Device: d.Name, PrivateKey: fabric.Secret(d.PrivateKey), ListenPort: d.ListenPort})
		}
	}
	return out, nil
}

// Normalize accepts any port if none is desired.
func (*Wireguards) Normalize(want, have desired.Wireguard) desired.Wireguard {
	if want.ListenPort == 0 {
		want.ListenPort = have.ListenPort
	}
	return want
}

// Apply writes configurations. A deleted configuration loses its key and its peers.
func (k *Wireguards) Apply(ctx context.Context, changes []diff.Change[desired.Wireguard]) error {
	// Devices first leave ports that other devices need: if two devices exchange ports, no
	// order of writes works. An error shows when they set their own port.
	requiredPorts := map[int]bool{}
	for _, c := range changes {
		if c.Op != diff.Delete && c.Want.ListenPort != c.Have.ListenPort {
			requiredPorts[c.Want.ListenPort] = true
		}
	}
	for _, c := range changes {
		if c.Op == diff.Update && c.Want.ListenPort != c.Have.ListenPort && requiredPorts[c.Have.ListenPort] {
			_ = k.ns.configure(ctx, c.Key, wgtypes.Config{ListenPort: new(int)})
		}
	}
	return converge.Each(ctx, changes, func(c diff.Change[desired.Wireguard]) error {
		config := wgtypes.Config{}
		if c.Op == diff.Delete {
			config.PrivateKey, config.ListenPort, config.ReplacePeers = &wgtypes.Key{}, new(int), true
		} else {
			key := wgtypes.Key(c.Want.PrivateKey)
			config.PrivateKey = &key
			if c.Want.ListenPort != 0 && c.Want.ListenPort != c.Have.ListenPort {
				config.ListenPort = &c.Want.ListenPort
			}
		}
		err := k.ns.configure(ctx, c.Key, config)
		if c.Op == diff.Delete && errors.As(err, new(converge.ErrBlocked)) {
			return nil
		}
		return err
	})
}

// snapshotAge is the time for which Peers may reuse the devices that Wireguards read. Its stage
// follows in the same pass.
const snapshotAge = 100 * time.Millisecond

// deviceSnapshot is one read of all devices with their peers. Reading one device with 1 000
// peers takes 4 ms.
type deviceSnapshot struct {
	devices []*wgtypes.Device
	at      time.Time
}

// reuseDevices returns the devices of the last snapshot, if it is recent, was not used yet, and
// nothing was configured since. Otherwise it reads the devices.
func (ns *Namespace) reuseDevices(ctx context.Context) ([]*wgtypes.Device, error) {
	last := ns.wgSnapshot
	ns.wgSnapshot = nil
	if last != nil && time.Since(last.at) < snapshotAge {
		return last.devices, nil
	}
	return ns.devices(ctx)
}

// devices returns the WireGuard devices among our devices that respond. A device whose process is
// gone or hangs must not block the others.
func (ns *Namespace) devices(ctx context.Context) ([]*wgtypes.Device, error) {
	list, err := ns.links()
	if err != nil {
		return nil, err
	}
	var out []*wgtypes.Device
	for _, l := range list {
		if !mayBeWireguard(l) {
			continue
		}
		name := l.Attrs().Name
		d, err := ns.wg.Device(ctx, name)
		if errors.Is(err, userspacewg.ErrNoAnswer) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read wireguard device %s: %w", name, err)
		}
		out = append(out, d)
	}
	return out, nil
}

func mayBeWireguard(l netlink.Link) bool {
	switch l.(type) {
	case *netlink.Wireguard, *netlink.Tuntap:
		return true
	}
	return false
}

// configure writes to one of our devices; ErrBlocked while it does not exist.
func (ns *Namespace) configure(ctx context.Context, name string, config wgtypes.Config) error {
	ns.wgSnapshot = nil
	if _, err := ns.link(name); err != nil {
		return err
	}
	err := ns.wg.Configure(ctx, name, config)
	if errors.Is(err, userspacewg.ErrNoAnswer) {
		return converge.ErrBlocked{On: "an answer of wireguard device " + name}
	}
	if err != nil {
		return fmt.Errorf("configure wireguard device %s: %w", name, err)
	}
	return nil
}
