package apply

import (
	"strings"
	"testing"

	"filippo.io/age"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/fakeapi"
)

// TestSetup: an identity is created once if absent, and rejected if it cannot open the keys sealed for
// the cluster. With delivery objects, only the namespace of the tree is applied, and there is no
// inventory.
func TestSetup(t *testing.T) {
	t.Parallel()
	newIdentity := func() (text, recipient string) {
		i, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		return "# public key: " + i.Recipient().String() + "\n" + i.String() + "\n", i.Recipient().String()
	}
	first, recipient := newIdentity()
	second, other := newIdentity()
	api, c := fakeapi.New(t, "g1")
	tree := fakeapi.Tree(t, nil, []string{"g1"})
	want := func(s Setup) Desired {
		w := desired(t, tree, "g1")
		w.addSetup(s)
		return w
	}
	ctx := t.Context()
	expectError := func(s Setup, text string) {
		t.Helper()
		_, err := NewPlan(ctx, c, want(s), Rules{})
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "AGE-SECRET") {
			t.Errorf("%v, want %q", err, text)
		}
	}
	expectError(Setup{Recipient: recipient}, "there is no file of its identity here")
	p := planAndExecute(t, c, want(Setup{Identity: first, Recipient: recipient}))
	const secret = "/api/v1/namespaces/hawser-system/secrets/hawser-age-identity"
	if api.Objects[secret] == nil || p.Empty() {
		t.Fatal("no identity was made")
	}
	p, err := NewPlan(ctx, c, want(Setup{Recipient: recipient}), Rules{})
	if err != nil || !p.Empty() {
		t.Errorf("again: %+v, %v", p, err)
	}
	expectError(Setup{Identity: second, Recipient: other}, "is the identity of "+recipient+", and the topology has recipient "+other)
	api.Objects[secret]["data"] = map[string]any{kubeclient.IdentityKey: kubeclient.Base64(first + second)}
	if p, err := NewPlan(ctx, c, want(Setup{Recipient: other}), Rules{}); err != nil || !p.Empty() {
		t.Errorf("with two identities: %+v, %v", p, err)
	}
	api.Objects[secret]["data"] = map[string]any{kubeclient.IdentityKey: "AGE-SECRET-KEY-1QQ"}
	expectError(Setup{Recipient: recipient}, "its identity.txt is not base64")
	api.Objects[secret]["data"] = map[string]any{kubeclient.IdentityKey: kubeclient.Base64("AGE-SECRET-KEY-1QQ")}
	expectError(Setup{Recipient: recipient}, "it is no file of age identities")

	api, c = fakeapi.New(t, "g1")
	signersSecret := kubeclient.IdentityObject("")
	signersSecret.SetName("hawser-signers")
	planAndExecute(t, c, want(Setup{Identity: first, Recipient: recipient, Delivery: append(want(Setup{}).Objects[:0:0], signersSecret)}))
	for path := range api.Objects {
		if strings.Contains(path, "inventory") || strings.Contains(path, "daemonsets") {
			t.Errorf("%s was made", path)
		}
	}
	for _, name := range []string{"/api/v1/namespaces/hawser-system", secret, "/api/v1/namespaces/hawser-system/secrets/hawser-signers"} {
		if api.Objects[name] == nil {
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
