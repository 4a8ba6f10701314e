package ipsec

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
	"hawser.dev/hawser/schema/fabric"
)

func TestLaws(t *testing.T) {
	t.Parallel()
	needCharon(t)
	e, o := newEnd(t, "a"), newEnd(t, "b")
	e.outer, e.inner, o.outer, o.inner = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("241.0.0.2")
	e.start(t)
	waits := e.to(o)
	waits.Name, waits.Remote, waits.Initiator, waits.RemoteID = "hawser-c", netip.AddrPort{}, false, "c.test"
	foreign := func(t *testing.T) {
		e.call(t, "load-conn", vici.Section{"home": vici.Section{
			"remote_addrs": []string{"198.51.100.1"}, "local": vici.Section{"auth": "pubkey"}, "remote": vici.Section{"auth": "pubkey"},
			"children": vici.Section{"net": vici.Section{"local_ts": []string{"10.0.0.0/8"}}},
		}})
		e.call(t, "load-key", vici.Section{"type": "any", "data": string(pkcs8(fabric.Secret{9}))})
	}
	convergetest.Laws(t, func(*testing.T) converge.Kind[desired.IPsec] { return NewConnections(e.charon) },
		convergetest.Samples[desired.IPsec]{
			Want: []desired.IPsec{e.to(o), waits},
			Vary: vary,
			Tamper: map[string]func(*testing.T){
				"unloaded": func(t *testing.T) { e.call(t, "unload-conn", vici.Section{"name": "hawser-b"}) },
				"stranger": func(t *testing.T) { e.call(t, "load-conn", vici.Section{"hawser-x": vici.Section{}}) },
				"key gone": func(t *testing.T) { e.call(t, "unload-key", vici.Section{"id": keyID(publicKey(e.seed))}) },
				"changed": func(t *testing.T) {
					e.call(t, "load-conn", vici.Section{"hawser-b": vici.Section{"remote_addrs": []string{"198.51.100.9"}}})
				},
			},
			Foreign: func(t *testing.T) func() error {
				foreign(t)
				return func() error {
					if !slices.Contains(e.call(t, "get-conns", nil).List("conns"), "home") {
						return errors.New("the connection home is gone")
					}
					if !slices.Contains(e.call(t, "get-keys", nil).List("keys"), keyID(publicKey(fabric.Secret{9}))) {
						return errors.New("the key of home is gone")
					}
					return nil
				}
			},
		})
}

func vary(c desired.IPsec) []desired.IPsec {
	out := make([]desired.IPsec, 0, 12)
	change := func(f func(*desired.IPsec)) {
		varied := c
		f(&varied)
		out = append(out, varied)
	}
	change(func(c *desired.IPsec) { c.LocalPort = 14501 })
	change(func(c *desired.IPsec) { c.LocalID = "z.test" })
	change(func(c *desired.IPsec) { c.RemoteID = "y.test" })
	change(func(c *desired.IPsec) { c.PrivateKey = fabric.Secret{7} })
	change(func(c *desired.IPsec) { c.PublicKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" })
	change(func(c *desired.IPsec) { c.LocalAddr = c.LocalAddr.Next() })
	change(func(c *desired.IPsec) { c.RemoteAddr = netip.MustParseAddr("fd00::1") })
	change(func(c *desired.IPsec) { c.Initiator = !c.Initiator })
	change(func(c *desired.IPsec) { c.Encapsulation = fabric.EncapsulationUDP })
	change(func(c *desired.IPsec) { c.Proposals = []string{fabric.ProposalChaCha20} })
	change(func(c *desired.IPsec) { c.Rekey = 2 * time.Hour })
	change(func(c *desired.IPsec) { c.Remote = netip.MustParseAddrPort("203.0.113.9:14500") })
	if c.Remote.IsValid() {
		change(func(c *desired.IPsec) { c.Remote = netip.MustParseAddrPort("203.0.113.2:4500") })
		change(func(c *desired.IPsec) { c.Remote = netip.AddrPort{} })
	}
	return out
}
