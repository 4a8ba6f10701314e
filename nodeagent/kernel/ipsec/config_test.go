package ipsec

import (
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

func sample() desired.IPsec {
	return desired.IPsec{
		Name: "hawser-b", Remote: netip.MustParseAddrPort("203.0.113.2:4500"), LocalPort: 4500, LocalID: "a", RemoteID: "b",
		PrivateKey: fabric.Secret{1}, PublicKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		LocalAddr: netip.MustParseAddr("241.0.0.1"), RemoteAddr: netip.MustParseAddr("241.0.0.2"), Initiator: true,
		Encapsulation: fabric.EncapsulationAuto, Proposals: []string{fabric.ProposalAESGCM}, Rekey: time.Hour,
	}
}

func TestSection(t *testing.T) {
	t.Parallel()
	c := sample()
	s, err := connectionSection(&c, "child", true)
	if err != nil {
		t.Fatal(err)
	}
	child := s.Sub("children").Sub("child")
	want := map[string]string{
		s.Text("rekey_time"): "14400s", s.Text("remote_port"): "4500", s.Text("encap"): "no", child.Text("start_action"): "start",
		child.Text("rekey_time"): "3600s", child.Text("if_id_in"): "73",
		strings.Join(child.List("esp_proposals"), " "): "aes256gcm16-x25519", strings.Join(s.List("proposals"), " "): "aes256gcm16-prfsha256-x25519",
	}
	for have, want := range want {
		if have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
	c.Initiator, c.Remote = false, netip.AddrPort{}
	if s, err = connectionSection(&c, "child", false); err != nil {
		t.Fatal(err)
	}
	child = s.Sub("children").Sub("child")
	if s.Text("rekey_time") != "0s" || child.Text("rekey_time") != "0s" || child.Text("start_action") != "none" ||
		s.Text("encap") != "yes" || s.List("remote_addrs")[0] != "%any" || child.Text("if_id_in") != "" {
		t.Errorf("the responder has %v", s)
	}
}

func TestSectionWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*desired.IPsec)
		want   string
	}{
		{"proposal", func(c *desired.IPsec) { c.Proposals = []string{"des"} }, `unknown proposal "des"`},
		{"no base64", func(c *desired.IPsec) { c.PublicKey = "?" }, "public key of b is not 32 bytes of base64"},
		{"short key", func(c *desired.IPsec) { c.PublicKey = "AAAA" }, "public key of b is not 32 bytes of base64"},
		{"no key", func(c *desired.IPsec) { c.PublicKey = "" }, "public key of b is not 32 bytes of base64"},
	}
	for _, tt := range tests {
		c := sample()
		tt.change(&c)
		if _, err := connectionSection(&c, "child", true); err == nil || err.Error() != tt.want {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	seed := fabric.Secret{1, 2, 3}
	want, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil || string(pkcs8(seed)) != string(want) {
		t.Errorf("private key %x, want %x (%v)", pkcs8(seed), want, err)
	}
	c := sample()
	name := childName(&c, true)
	if childKey(name) != keyID(publicKey(c.PrivateKey)) || childKey("other") != "" || childKey("v2-a-b") != "" {
		t.Errorf("key of %s", name)
	}
	if childName(&c, false) == name {
		t.Error("kernel does not count")
	}
	if text := fmt.Sprintf("%v %+v", c.Fields(), c); strings.Contains(text, "AQIDAA") {
		t.Errorf("shows the key: %s", text)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	c := &Charon{Dir: filepath.Join(t.TempDir(), "new")}
	if p := c.settingsPorts(); p != (ports{}) {
		t.Errorf("ports %v", p)
	}
	for _, want := range []ports{{500, 4500}, {1500, 14500}} {
		if err := c.configure(want); err != nil || c.settingsPorts() != want {
			t.Errorf("ports %v, want %v (%v)", c.settingsPorts(), want, err)
		}
	}
	raw, err := os.ReadFile(c.path(settingsFile))
	if err != nil || !strings.Contains(string(raw), "port_nat_t = 14500\n") || !strings.Contains(string(raw), "kernel-libipsec") {
		t.Errorf("settings %s, error %v", raw, err)
	}
	for _, text := range []string{"", "charon {\n", header, header + "x y\n"} {
		if err := os.WriteFile(c.path(settingsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if p := c.settingsPorts(); p != (ports{}) {
			t.Errorf("ports of %q: %v", text, p)
		}
	}
}
