package ipsec

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
)

// callTimeout bounds all that one pass asks of charon.
const callTimeout = 10 * time.Second

// Connections is the kind of charon's connections: those named hawser-* are ours,
// and their keys.
type Connections struct {
	charon *Charon
	// children names the ESP tunnel of each connection, as of the last Observe;
	// wanted are those that Adopt took fields from.
	children map[string]string
	wanted   map[string]desired.IPsec
	// loaded are connections as charon has them, as far as this process knows.
	loaded map[string]desired.IPsec
}

// NewConnections makes the kind.
func NewConnections(charon *Charon) *Connections {
	return &Connections{charon: charon, loaded: map[string]desired.IPsec{}}
}

// Name is "ipsec".
func (*Connections) Name() string { return "ipsec" }

// Observe gives our connections; none while no charon answers. What charon does
// not tell is left empty; see Adopt.
func (k *Connections) Observe(ctx context.Context) ([]desired.IPsec, error) {
	k.children, k.wanted = map[string]string{}, map[string]desired.IPsec{}
	if !k.charon.present() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := k.charon.Dial(ctx)
	if errors.Is(err, ErrNoCharon) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer client.Close()
	keys, err := client.Call(ctx, "get-keys", nil)
	if err != nil {
		return nil, err
	}
	var out []desired.IPsec
	err = client.Stream(ctx, "list-conns", "list-conn", nil, func(s vici.Section) error {
		for name := range s {
			if strings.HasPrefix(name, desired.IPsecPrefix) {
				c, child := read(name, s.Sub(name))
				if slices.Contains(keys.List("keys"), childKey(child)) {
					k.children[name] = child
				}
				out = append(out, c)
			}
		}
		return nil
	})
	return out, err
}

// read takes from a connection what charon reports about it.
func read(name string, s vici.Section) (c desired.IPsec, child string) {
	c.Name = name
	if addrs := s.List("remote_addrs"); len(addrs) > 0 {
		if a, err := netip.ParseAddr(addrs[0]); err == nil {
			c.Remote = netip.AddrPortFrom(a, 0)
		}
	}
	for key := range s {
		switch {
		case strings.HasPrefix(key, "local-"):
			c.LocalID = s.Sub(key).Text("id")
		case strings.HasPrefix(key, "remote-"):
			c.RemoteID = s.Sub(key).Text("id")
		}
	}
	for name := range s.Sub("children") {
		child = name
		tunnel := s.Sub("children").Sub(name)
		c.LocalAddr, c.RemoteAddr = onlyAddr(tunnel.List("local-ts")), onlyAddr(tunnel.List("remote-ts"))
	}
	if len(s.Sub("children")) != 1 {
		child = ""
	}
	return c, child
}

func onlyAddr(selectors []string) netip.Addr {
	if len(selectors) != 1 {
		return netip.Addr{}
	}
	p, err := netip.ParsePrefix(selectors[0])
	if err != nil || !p.IsSingleIP() {
		return netip.Addr{}
	}
	return p.Addr()
}

// Normalize takes as they are the fields that charon does not tell, when what it was
// given last had the same ones.
func (k *Connections) Normalize(want, have desired.IPsec) desired.IPsec {
	if k.children[want.Name] != childName(&want, k.charon.InKernel()) {
		return want
	}
	k.wanted[want.Name], k.loaded[want.Name] = want, want
	if want.Remote.IsValid() {
		want.Remote = netip.AddrPortFrom(want.Remote.Addr(), have.Remote.Port())
	}
	want.LocalPort = have.LocalPort
	want.PrivateKey, want.PublicKey, want.Initiator = have.PrivateKey, have.PublicKey, have.Initiator
	want.Encapsulation, want.Proposals, want.Rekey = have.Encapsulation, have.Proposals, have.Rekey
	return want
}

// Apply loads and unloads connections. None other than those that changed is touched.
func (k *Connections) Apply(ctx context.Context, changes []diff.Change[desired.IPsec]) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := k.charon.Dial(ctx)
	if errors.Is(err, ErrNoCharon) {
		if changes[0].Op == diff.Delete {
			return nil
		}
		err = converge.ErrBlocked{On: "charon"}
	}
	if err != nil {
		var errs []error
		for _, c := range changes {
			errs = append(errs, converge.KeyError{Key: c.Key, Err: err})
		}
		return errors.Join(errs...)
	}
	defer client.Close()
	return converge.Each(ctx, changes, func(c diff.Change[desired.IPsec]) error {
		if c.Op == diff.Delete {
			return k.unload(ctx, client, c.Key)
		}
		return k.load(ctx, client, c)
	})
}

func (k *Connections) load(ctx context.Context, client *vici.Client, c diff.Change[desired.IPsec]) error {
	if whole, adopted := k.wanted[c.Key]; adopted {
		c.Want = whole
	}
	child := childName(&c.Want, k.charon.InKernel())
	conn, err := section(&c.Want, child, k.charon.InKernel())
	if err != nil {
		return err
	}
	if _, err := client.Call(ctx, "load-key", vici.Section{"type": "any", "data": string(pkcs8(c.Want.PrivateKey))}); err != nil {
		return err
	}
	if _, err := client.Call(ctx, "load-conn", vici.Section{c.Key: conn}); err != nil {
		return err
	}
	before, known := k.loaded[c.Key]
	k.loaded[c.Key] = c.Want
	switch {
	case c.Op == diff.Create || c.Want.Initiator:
		return nil // charon itself begins anew with what changed
	case known && onlyMoved(before, c.Want):
		return nil // the other end begins, wherever that is; what there is may live
	}
	// What was agreed upon with the old configuration goes; the other end begins.
	return terminate(ctx, client, c.Key)
}

// onlyMoved reports whether two connections differ in where the other gateway listens
// and in nothing else.
func onlyMoved(a, b desired.IPsec) bool {
	moved := a.Remote != b.Remote
	a.Remote = b.Remote
	return moved && slices.Equal(a.Fields(), b.Fields())
}

func (k *Connections) unload(ctx context.Context, client *vici.Client, name string) error {
	if _, err := client.Call(ctx, "unload-conn", vici.Section{"name": name}); err != nil && !errors.Is(err, vici.ErrRefused) {
		return err
	}
	if err := terminate(ctx, client, name); err != nil {
		return err
	}
	key := childKey(k.children[name])
	delete(k.children, name)
	delete(k.loaded, name)
	for _, other := range k.children {
		if childKey(other) == key {
			return nil
		}
	}
	if key == "" {
		return nil
	}
	if _, err := client.Call(ctx, "unload-key", vici.Section{"id": key}); err != nil && !errors.Is(err, vici.ErrRefused) {
		return err
	}
	return nil
}

// terminate ends what is established under a name, without waiting for the other end.
func terminate(ctx context.Context, client *vici.Client, name string) error {
	_, err := client.Call(ctx, "terminate", vici.Section{"ike": name, "timeout": "-1"})
	if err != nil && !errors.Is(err, vici.ErrRefused) {
		return fmt.Errorf("end connection %s: %w", name, err)
	}
	return nil
}
