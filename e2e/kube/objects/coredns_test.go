//go:build kube

package objects

import (
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// TestAnotherServesTheDomain starts a real CoreDNS with the configuration of the API, as a new pod
// does, after another server block serves Hawser's domain.
func TestAnotherServesTheDomain(t *testing.T) {
	s, want := prepare(t)
	want.Forward.Zones = append(want.Forward.Zones, "0.243.in-addr.arpa")
	want.Forward.Servers = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	port := api.FreePorts(t, 1)[0]
	set := func(corefile string) {
		s.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata:\n  Corefile: |\n    "+
			strings.ReplaceAll(strings.TrimSpace(corefile), "\n", "\n    ")+"\n", "--force-conflicts")
	}
	text := func() string {
		return s.K(t, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	}
	root := ".:" + port + " {\n    errors\n}\n"
	set(root)
	start(t, s, want)
	ours := "clusterset.local:" + port + " 0.243.in-addr.arpa:" + port + " {"
	eventually(t, "the block is not written", func() bool { return strings.Contains(text(), ours) })
	whole := text()
	if ok, said := api.CoreDNS(t, whole); !ok {
		t.Fatalf("CoreDNS does not take\n%s\n%s", whole, said)
	}
	theirs := "clusterset.local:" + port + " {\n    errors\n    forward . 127.0.0.1\n}\n"
	if ok, said := api.CoreDNS(t, whole+"\n"+theirs); ok || !strings.Contains(said, "already defined") {
		t.Fatalf("CoreDNS serves a domain twice, so this test proves nothing: %s", said)
	}
	set(whole + "\n" + theirs)
	eventually(t, "the domain is served twice", func() bool { return !strings.Contains(text(), ours) })
	for _, part := range []string{"# hawser: begin", "\n0.243.in-addr.arpa:" + port + " {", strings.TrimSpace(theirs), strings.TrimSpace(root)} {
		if !strings.Contains(text(), part) {
			t.Errorf("%q is not in\n%s", part, text())
		}
	}
	if ok, said := api.CoreDNS(t, text()); !ok {
		t.Errorf("CoreDNS does not take\n%s\n%s", text(), said)
	}
	set(strings.ReplaceAll(text(), strings.TrimSpace(theirs), ""))
	eventually(t, "the block is not whole again", func() bool { return strings.Contains(text(), ours) })
	if ok, said := api.CoreDNS(t, text()); !ok {
		t.Errorf("CoreDNS does not take\n%s\n%s", text(), said)
	}
}
