package kernel

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
)

// newCharon returns a charon for a test. It encrypts itself if the kernel cannot.
func newCharon(t *testing.T, w *testNode) *ipsec.Charon {
	t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		skipOrFail(t, "tun")
	}
	if _, err := ipsec.Program(); err != nil {
		skipOrFail(t, "charon")
	}
	c := &ipsec.Charon{Dir: filepath.Join(t.TempDir(), "ipsec")}
	inKernel := false
	if err := w.ns.inside(func() error { inKernel = ipsec.KernelESP(); return nil }); err != nil {
		t.Fatal(err)
	}
	c.Kernel = func() bool { return inKernel }
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func ipsecDevice() desired.Device {
	return desired.Device{Name: desired.IPsecDevice, Type: desired.DeviceIPsec, MTU: 1400, Up: true, Port: 14500, IKEPort: 1500}
}

func TestIPsecDeviceLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	charon := newCharon(t, w)
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Device] { return NewDevices(w.open(t), nil).WithESP(charon) },
		convergetest.Samples[desired.Device]{
			Want: []desired.Device{ipsecDevice()},
			Vary: func(l desired.Device) []desired.Device {
				mtu, down, port, ike := l, l, l, l
				mtu.MTU, down.Up, port.Port, ike.IKEPort = 1300, false, 14501, 1501
				return []desired.Device{mtu, down, port, ike}
			},
			Tamper: map[string]func(*testing.T){
				"deleted": w.foreign("link del " + desired.IPsecDevice),
				"down":    w.foreign("link set " + desired.IPsecDevice + " down"),
				"ended": func(t *testing.T) {
					if err := charon.Stop(t.Context()); err != nil {
						t.Fatal(err)
					}
				},
			},
			Conflict: func(t *testing.T) (desired.Device, func() error) {
				w.ip(t, "link add "+desired.IPsecDevice+" type vxlan id 7 dstport 7007")
				return ipsecDevice(), w.expectIP("-d link show "+desired.IPsecDevice, "vxlan id 7 ")
			},
		})
}

// TestExternalCharon uses a charon that another program runs, and leaves it unchanged.
func TestExternalCharon(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	foreign := newCharon(t, w)
	if err := w.ns.inside(func() error { return foreign.Start(t.Context(), 500, 4500) }); err != nil {
		t.Fatal(err)
	}
	external := &ipsec.Charon{ExternalSocket: foreign.Socket(), Kernel: foreign.Kernel}
	kind := NewDevices(w.ns, nil).WithESP(external)
	e := converge.Engine[[]desired.Device]{
		Stages: []converge.Stage[[]desired.Device]{converge.NewStage(kind, func(l []desired.Device) []desired.Device { return l }, nil)},
		// Permit an empty desired state.
		Decommission: func([]desired.Device) bool { return true },
	}
	want := []desired.Device{ipsecDevice()}
	for i, changes := range []int{1, 0} {
		if r := e.Once(t.Context(), want, ""); !r.Clean() || len(r.Changed) != changes {
			t.Errorf("pass %d: failed %v, changed %v", i, r.Failed, r.Changed)
		}
	}
	if r := e.Once(t.Context(), nil, ""); !r.Clean() || !foreign.Alive() {
		t.Errorf("failed %v, charon lives: %t", r.Failed, foreign.Alive())
	}
	if !foreign.InKernel() { // the TUN device of the other charon stays, without Hawser's group
		if err := w.expectIP("link show "+desired.IPsecDevice, "group default")(); err != nil {
			t.Error(err)
		}
	}
	if err := foreign.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := e.Once(t.Context(), want, ""); len(r.Failed) != 1 {
		t.Errorf("without the external charon: %v", r)
	}
}
