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

// callTimeout bounds all requests to charon in one pass.
const callTimeout = 10 * time.Second

// Connections is the kind of charon's connections. Connections named hawser-* are ours, with
// their keys.
type Connections struct {
	charon *Charon
	// children has the ESP tunnel name of each connection, as of the last Observe. wanted has
	// the desired connections that Normalize matched.
	children map[string]string
	wanted   map[string]desired.IPsec
	// loaded has the connections that this process loaded into charon.
	loaded map[string]desired.IPsec
}

// NewConnections returns the kind.
func NewConnections(charon *Charon) *Connections {
	return &Connections{charon: charon, loaded: map[string]desired.IPsec{}}
}

// Name returns "ipsec".
func (*Connections) Name() string { return "ipsec" }

// Observe returns our connections; none if no charon responds. Fields that charon does not
// report are empty; see Normalize.
func (k *Connections) Observe(ctx context.Context) ([]desired.IPsec, error) {
	k.children, k.wanted = map[string]string{}, map[string]desired.IPsec{}
	if !k.charon.socketExists() {
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
				c, child := parseConnection(name, s.Sub(name))
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

// parseConnection decodes charon's report about a connection.
func parseConnection(name string, s vici.Section) (c desired.IPsec, child string) {
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
		c.LocalAddr, c.RemoteAddr = singleAddr(tunnel.List("local-ts")), singleAddr(tunnel.List("remote-ts"))
	}
	if len(s.Sub("children")) != 1 {
		child = ""
	}
	return c, child
}

func singleAddr(selectors []string) netip.Addr {
	if len(selectors) != 1 {
		return netip.Addr{}
	}
	p, err := netip.ParsePrefix(selectors[0])
	if err != nil || !p.IsSingleIP() {
		return netip.Addr{}
	}
	return p.Addr()
}

// Normalize accepts the fields that charon does not report, if charon's last configuration had
// the same digest.
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

// Apply loads and unloads connections. Unchanged connections are not touched.
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
	if complete, adopted := k.wanted[c.Key]; adopted {
		c.Want = complete
	}
	child := childName(&c.Want, k.charon.InKernel())
	conn, err := connectionSection(&c.Want, child, k.charon.InKernel())
	if err != nil {
		return err
	}
	if _, err := client.Call(ctx, "load-key", vici.Section{"type": "any", "data": string(pkcs8(c.Want.PrivateKey))}); err != nil {
		return err
	}
	if _, err := client.Call(ctx, "load-conn", vici.Section{c.Key: conn}); err != nil {
		return err
	}
	previous, known := k.loaded[c.Key]
	k.loaded[c.Key] = c.Want
	switch {
	case c.Op == diff.Create || c.Want.Initiator:
		return nil // charon restarts changed connections itself
	case known && onlyEndpointChanged(previous, c.Want):
		return nil // the peer initiates from any address; existing associations may live
	}
	// Associations of the old configuration are terminated; the peer initiates.
	return terminate(ctx, client, c.Key)
}

// onlyEndpointChanged reports whether two connections differ only in the endpoint of the other
// gateway.
func onlyEndpointChanged(a, b desired.IPsec) bool {
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

// terminate terminates the associations of a name, without waiting for the peer.
func terminate(ctx context.Context, client *vici.Client, name string) error {
	_, err := client.Call(ctx, "terminate", vici.Section{"ike": name, "timeout": "-1"})
	if err != nil && !errors.Is(err, vici.ErrRefused) {
		return fmt.Errorf("terminate connection %s: %w", name, err)
	}
	return nil
}
