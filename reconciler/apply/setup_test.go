package apply

import (
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/schema"
)

// TestSetup: an identity is made where there is none, is not made again, and is refused where
// it opens nothing that is sealed for the cluster. With objects to follow, nothing else of the
// tree is applied but the namespace, and no inventory is kept.
func TestSetup(t *testing.T) {
	t.Parallel()
	made := func() (text, recipient string) {
		i, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		return "# public key: " + i.Recipient().String() + "\n" + i.String() + "\n", i.Recipient().String()
	}
	first, mine := made()
	second, other := made()
	api, c := newFake(t, "g1")
	tree := treeOf(t, nil, []string{"g1"})
	want := func(s Setup) Desired {
		w := workable(t, tree, "g1")
		w.setUp(s)
		return w
	}
	ctx := t.Context()
	refused := func(s Setup, text string) {
		t.Helper()
		_, err := c.Plan(ctx, want(s), Rules{})
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "AGE-SECRET") {
			t.Errorf("%v, want %q", err, text)
		}
	}
	refused(Setup{Recipient: mine}, "there is no file of its identity here")
	p := carried(t, c, want(Setup{Identity: first, Recipient: mine}))
	const secret = "/api/v1/namespaces/hawser-system/secrets/hawser-age-identity"
	if api.objects[secret] == nil || p.Empty() {
		t.Fatal("no identity was made")
	}
	p, err := c.Plan(ctx, want(Setup{Recipient: mine}), Rules{})
	if err != nil || !p.Empty() {
		t.Errorf("again: %+v, %v", p, err)
	}
	refused(Setup{Identity: second, Recipient: other}, "is the identity of "+mine+", and the topology has recipient "+other)
	api.objects[secret]["data"] = map[string]any{IdentityKey: encoded(first + second)}
	if p, err := c.Plan(ctx, want(Setup{Recipient: other}), Rules{}); err != nil || !p.Empty() {
		t.Errorf("with two identities: %+v, %v", p, err)
	}
	api.objects[secret]["data"] = map[string]any{IdentityKey: "AGE-SECRET-KEY-1QQ"}
	refused(Setup{Recipient: mine}, "its identity.txt is not base64")
	api.objects[secret]["data"] = map[string]any{IdentityKey: encoded("AGE-SECRET-KEY-1QQ")}
	refused(Setup{Recipient: mine}, "it is no file of age identities")

	api, c = newFake(t, "g1")
	follow := identityObject("")
	follow.SetName("hawser-signers")
	carried(t, c, want(Setup{Identity: first, Recipient: mine, Follow: append(want(Setup{}).Objects[:0:0], follow)}))
	for path := range api.objects {
		if strings.Contains(path, "inventory") || strings.Contains(path, "daemonsets") {
			t.Errorf("%s was made", path)
		}
	}
	for _, name := range []string{"/api/v1/namespaces/hawser-system", secret, "/api/v1/namespaces/hawser-system/secrets/hawser-signers"} {
		if api.objects[name] == nil {
			t.Errorf("%s was not made", name)
		}
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Recipients(hybrid.String()); err != nil || len(got) != 1 || got[0] != hybrid.Recipient().String() {
		t.Errorf("a post-quantum identity: %q, %v", got, err)
	}
	if got := shortened([]string{hybrid.Recipient().String()})[0]; len(got) > 80 {
		t.Errorf("%d characters are shown", len(got))
	}
}

// TestClockSkew: preflight reports an API server whose clock is not this machine's, and in
// which direction.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		0: "", time.Minute: "the clock of the API server is 1m0s ahead of this machine's", -time.Hour: "the clock of the API server is 1h0m0s behind this machine's",
	} {
		api, c := newFake(t, "g1")
		api.ahead = ahead
		list, err := c.Preflight(t.Context(), discover.Expected{Cluster: &schema.Cluster{Name: "g1"}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range list {
			if d.Code == "clock-skew" {
				got = d.Summary
			}
		}
		// The header has whole seconds.
		if got = strings.NewReplacer("59m59s", "1h0m0s", " 59s", " 1m0s", "1m1s", "1m0s", "1h0m1s", "1h0m0s").Replace(got); got != want {
			t.Errorf("%s ahead: %q, want %q", ahead, got, want)
		}
	}
}
