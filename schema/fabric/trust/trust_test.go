package trust_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/schema/fabric/trust"
)

func signer(t testing.TB, seed byte) ssh.Signer {
	t.Helper()
	out, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func line(s ssh.Signer) string { return trust.Line(s.PublicKey()) }

func sign(t testing.TB, kind trust.Kind, s trust.Statement, with ...ssh.Signer) trust.Signed {
	t.Helper()
	out, err := trust.Sign(kind, s, with...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func proof(t testing.TB, chain []trust.Signed, s trust.Signed) []byte {
	t.Helper()
	out, err := json.Marshal(trust.Proof{Chain: chain, Signed: s})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pinned(t testing.TB, remembered trust.Remembered, signers ...ssh.Signer) trust.Remembered {
	t.Helper()
	var text string
	for _, s := range signers {
		text += "set/a " + line(s) + " comment\n"
	}
	pins, err := trust.ParsePins([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := trust.Pinned(pins, "a", remembered)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var document = []byte("document")

func fabricAt(revision int64) trust.Statement {
	return trust.Statement{Clusterset: "set", Revision: revision, SHA256: trust.Hash(document)}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	own, other := signer(t, 'o'), signer(t, 'x')
	keys := trust.Statement{Clusterset: "set", Cluster: "a", Revision: 7, SHA256: trust.Hash(document)}
	with := func(change func(*trust.Statement)) trust.Statement {
		s := fabricAt(7)
		change(&s)
		return s
	}
	tests := []struct {
		name   string
		kind   trust.Kind
		proof  []byte
		reason trust.Reason // empty = admitted
		text   string
	}{
		{"signed", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, fabricAt(7), own)), "", ""},
		{"signed by others too", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, fabricAt(7), other, own)), "", ""},
		{"the same revision", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, fabricAt(5), own)), "", ""},
		{"keys", trust.Keys, proof(t, nil, sign(t, trust.Keys, keys, own)), "", ""},
		{"no proof", trust.Fabric, nil, trust.Unsigned, "is not signed"},
		{"no JSON", trust.Fabric, []byte("{"), trust.Unsigned, "its signature cannot be read"},
		{"too long", trust.Fabric, make([]byte, trust.MaxProof+1), trust.Unsigned, "its signature is larger than 1048576 bytes"},
		{"no signature", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, fabricAt(7))), trust.UnknownSigner, "is not signed by a signer of clusterset set ("},
		{"another signed", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, fabricAt(7), other)), trust.UnknownSigner, ""},
		{"signed for another purpose", trust.Fabric, proof(t, nil, sign(t, trust.Keys, fabricAt(7), own)), trust.UnknownSigner, ""},
		{"the statement was changed", trust.Fabric, []byte(strings.Replace(string(proof(t, nil, sign(t, trust.Fabric, fabricAt(7), own))), ":7", ":8", 1)), trust.UnknownSigner, ""},
		{"a chain that another made", trust.Fabric, proof(t, []trust.Signed{sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(other)}}, other)},
			sign(t, trust.Fabric, fabricAt(7), other)), trust.UnknownSigner, ""},
		{"a chain of another clusterset", trust.Fabric, proof(t, []trust.Signed{sign(t, trust.Signers, trust.Statement{Clusterset: "b", Signers: []string{line(other)}}, own)},
			sign(t, trust.Fabric, fabricAt(7), other)), trust.UnknownSigner, ""},
		{"another document", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, with(func(s *trust.Statement) { s.SHA256 = trust.Hash(nil) }), own)),
			trust.DigestMismatch, "differs from the document signed as revision 7"},
		{"another clusterset", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, with(func(s *trust.Statement) { s.Clusterset = "b" }), own)),
			trust.OtherClusterset, "is signed for clusterset b, and this is set"},
		{"older", trust.Fabric, proof(t, nil, sign(t, trust.Fabric, fabricAt(4), own)), trust.Outdated, "is revision 4, older than revision 5"},
		{"older keys", trust.Keys, proof(t, nil, sign(t, trust.Keys, trust.Statement{Clusterset: "set", Cluster: "a", Revision: 2, SHA256: trust.Hash(document)}, own)),
			trust.Outdated, "is revision 2, older than revision 3"},
		{"keys of another cluster", trust.Keys, proof(t, nil, sign(t, trust.Keys, trust.Statement{Clusterset: "set", Cluster: "b", Revision: 7, SHA256: trust.Hash(document)}, own)),
			trust.OtherCluster, "is signed for cluster b, and this is a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := pinned(t, trust.Remembered{}, own)
			before.Fabric, before.Keys = 5, 3
			after, err := before.Admit(tt.kind, "a", document, tt.proof)
			var refusal *trust.Refusal
			switch {
			case tt.reason == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tt.reason == "" && tt.kind == trust.Keys && (after.Keys != 7 || after.Fabric != 5):
				t.Errorf("state %+v", after)
			case tt.reason == "":
				return
			case !errors.As(err, &refusal) || refusal.Reason != tt.reason || !strings.HasPrefix(err.Error(), tt.text):
				t.Errorf("err %v, want %s: %s", err, tt.reason, tt.text)
			}
			if !reflect.DeepEqual(after, before) {
				t.Errorf("a refusal changed the state from %+v to %+v", before, after)
			}
		})
	}
}

// TestRotation changes signers with two commits, twice. Agents with states of all steps then read
// the last published document.
func TestRotation(t *testing.T) {
	t.Parallel()
	one, two, three, foreign := signer(t, '1'), signer(t, '2'), signer(t, '3'), signer(t, 'f')
	var chain []trust.Signed
	var states []trust.Remembered // of agents that read all documents up to a step
	agent := pinned(t, trust.Remembered{}, one)
	for i, today := range [][]ssh.Signer{{one}, {one, two}, {two}, {two, three}, {three}} {
		var err error
		if chain, err = trust.ExtendChain("set", chain, today, today); err != nil {
			t.Fatal(err)
		}
		again, err := trust.ExtendChain("set", chain, today, today)
		if err != nil || !reflect.DeepEqual(again, chain) {
			t.Errorf("step %d: the chain changed though the signers did not: %v", i, err)
		}
		if agent, err = agent.Admit(trust.Fabric, "a", document, proof(t, chain, sign(t, trust.Fabric, fabricAt(int64(i+1)), today...))); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		states = append(states, agent)
	}
	last := proof(t, chain, sign(t, trust.Fabric, fabricAt(9), three))
	for i, state := range append(states, pinned(t, trust.Remembered{}, one), pinned(t, trust.Remembered{}, two), pinned(t, trust.Remembered{}, three)) {
		after, err := state.Admit(trust.Fabric, "a", document, last)
		if err != nil || len(after.Signers) != 1 || after.Signers[0] != line(three) {
			t.Errorf("agent %d: %v, signers %v", i, err, after.Signers)
		}
	}
	// With every chain, signatures of a replaced signer are refused.
	for name, forged := range map[string][]trust.Signed{
		"the old chain":     chain[:1],
		"a link of its own": append(chain[:len(chain):len(chain)], sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(one)}}, one)),
	} {
		if _, err := agent.Admit(trust.Fabric, "a", document, proof(t, forged, sign(t, trust.Fabric, fabricAt(99), one))); err == nil {
			t.Errorf("%s: the first signer is trusted still", name)
		}
	}
	// Foreign links in the chain do not break it.
	littered := []trust.Signed{{Statement: "{"}, sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(three), line(foreign)}}, foreign)}
	littered = append(littered, chain...)
	littered = append(littered, sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(foreign)}}, foreign))
	repaired, err := trust.ExtendChain("set", littered, []ssh.Signer{three}, []ssh.Signer{three})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pinned(t, trust.Remembered{}, one).Admit(trust.Fabric, "a", document, proof(t, repaired, sign(t, trust.Fabric, fabricAt(9), three))); err != nil {
		t.Errorf("after links of others: %v", err)
	}
}

// TestPinned checks that the saved state is valid as long as the pins do not change.
func TestPinned(t *testing.T) {
	t.Parallel()
	one, two := signer(t, '1'), signer(t, '2')
	remembered := pinned(t, trust.Remembered{}, one)
	remembered.Signers, remembered.Fabric = []string{line(two)}, 9
	if got := pinned(t, remembered, one); !reflect.DeepEqual(got, remembered) {
		t.Errorf("forgotten: %+v", got)
	}
	if got := pinned(t, remembered, two); got.Fabric != 0 || got.Signers[0] != line(two) {
		t.Errorf("another pin does not reset the state: %+v", got)
	}
	for text, want := range map[string]string{
		"set/b " + line(one) + "\nset/c* " + line(two):  "no signer is pinned for cluster a, only for set/b, set/c*",
		"set/a " + line(one) + "\nother/* " + line(two): "pinned signers are of two clustersets, set and other",
	} {
		pins, err := trust.ParsePins([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trust.Pinned(pins, "a", trust.Remembered{}); err == nil || err.Error() != want {
			t.Errorf("err %v, want %s", err, want)
		}
	}
}

func TestParsePins(t *testing.T) {
	t.Parallel()
	key := strings.Fields(line(signer(t, '1')))
	for text, want := range map[string]string{
		"":                                     "no signer in it: it needs lines CLUSTERSET/CLUSTER ssh-ed25519 KEY (hawser keys signers prints them)",
		"# comment\n\n":                        "no signer in it: ",
		"# comment\nset/a ssh-ed25519":         "line 2: not CLUSTERSET/CLUSTER KEYTYPE KEY",
		"set ssh-ed25519 " + key[1]:            `line 1: "set" is not CLUSTERSET/CLUSTER`,
		"set/[ ssh-ed25519 " + key[1]:          `line 1: "set/[" is not CLUSTERSET/CLUSTER: syntax error in pattern`,
		"set/a ssh-ed25519 ?":                  "line 1: the key is not base64",
		"set/a ssh-ed25519 aaaa":               "line 1: the key is not one of OpenSSH",
		"set/a ssh-rsa " + key[1]:              "line 1: the key is of type ssh-ed25519, not ssh-rsa",
		"set/a " + strings.Join(key, " ") + "": "",
	} {
		_, err := trust.ParsePins([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: err %v, want %s", text, err, want)
		}
	}
}

// TestOpenSSH checks that ssh-keygen verifies the signatures.
func TestOpenSSH(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	dir := t.TempDir()
	own := signer(t, 'o')
	signed := sign(t, trust.Fabric, fabricAt(7), own)
	for name, text := range map[string]string{"allowed": "set/a " + line(own) + "\n", "signature": signed.Signatures[0]} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, good := range map[string]bool{signed.Statement: true, signed.Statement + " ": false} {
		cmd := exec.Command(program, "-Y", "verify", "-f", filepath.Join(dir, "allowed"), "-I", "set/a", "-n", string(trust.Fabric), "-s", filepath.Join(dir, "signature"))
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); (err == nil) != good {
			t.Errorf("%q: %v\n%s", text, err, out)
		}
	}
}

// FuzzAdmit checks that Admit accepts only documents signed by own, with any proof.
func FuzzAdmit(f *testing.F) {
	own, other := signer(f, 'o'), signer(f, 'x')
	good := proof(f, nil, sign(f, trust.Fabric, fabricAt(7), own))
	f.Add(good)
	f.Add(proof(f, []trust.Signed{sign(f, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(other)}}, other)}, sign(f, trust.Fabric, fabricAt(8), other)))
	state := pinned(f, trust.Remembered{}, own)
	state.Fabric = 7
	f.Fuzz(func(t *testing.T, proof []byte) {
		after, err := state.Admit(trust.Fabric, "a", document, proof)
		if err == nil && (after.Fabric != 7 || len(after.Signers) != 1 || after.Signers[0] != line(own)) {
			t.Fatalf("admitted as %+v: %s", after, proof)
		}
		if _, err := state.Admit(trust.Fabric, "a", []byte("another"), proof); err == nil {
			t.Fatalf("admitted for another document: %s", proof)
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	own := signer(b, 'o')
	p := proof(b, nil, sign(b, trust.Fabric, fabricAt(7), own))
	state := pinned(b, trust.Remembered{}, own)
	for b.Loop() {
		if _, err := state.Admit(trust.Fabric, "a", document, p); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNewNode checks that a node without saved state refuses documents that are older than the
// floors of its pins. A floor never decreases.
func TestNewNode(t *testing.T) {
	t.Parallel()
	own := signer(t, 'o')
	pins := []byte("# by hand\nset/a " + line(own) + "\n")
	begin := func(raw []byte, remembered trust.Remembered) trust.Remembered {
		t.Helper()
		list, err := trust.ParsePins(raw)
		if err != nil {
			t.Fatal(err)
		}
		out, err := trust.Pinned(list, "a", remembered)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	at := func(s trust.Remembered, revision int64) error {
		_, err := s.Admit(trust.Fabric, "a", document, proof(t, nil, sign(t, trust.Fabric, fabricAt(revision), own)))
		return err
	}
	keysAt := func(s trust.Remembered, revision int64) error {
		statement := fabricAt(revision)
		statement.Cluster = "a"
		_, err := s.Admit(trust.Keys, "a", document, proof(t, nil, sign(t, trust.Keys, statement, own)))
		return err
	}
	raised, err := trust.RaiseFloors(pins, trust.Revisions{Fabric: 1000, Keys: 7})
	if err != nil {
		t.Fatal(err)
	}
	if want := "# revision: 1000\n# keys revision: 7\n" + string(pins); string(raised) != want {
		t.Errorf("got %s, want %s", raised, want)
	}
	fresh := begin(raised, trust.Remembered{})
	if at(fresh, 10) == nil || at(fresh, 999) == nil || at(fresh, 1000) != nil || at(fresh, 1001) != nil {
		t.Error("a new node does not begin at the floor of the fabric")
	}
	if keysAt(fresh, 6) == nil || keysAt(fresh, 7) != nil {
		t.Error("a new node does not begin at the floor of the keys")
	}
	lower, err := trust.RaiseFloors(raised, trust.Revisions{Fabric: 5})
	if err != nil || string(lower) != string(raised) {
		t.Errorf("a floor fell: %s, %v", lower, err)
	}

	// Floors neither replace nor reset the saved revisions of a node.
	veteran := begin(pins, trust.Remembered{})
	veteran.Fabric = 2000
	if got := begin(raised, veteran); got.Fabric != 2000 || got.Keys != 7 {
		t.Errorf("remembers %+v", got.Revisions)
	}
	if got := begin(pins, begin(raised, veteran)); got.Fabric != 2000 {
		t.Errorf("a floor that was removed lowers the memory: %+v", got.Revisions)
	}
	for text, want := range map[string]string{
		"# revision: x\n":       `line 1: the revision "x" is not a positive number`,
		"# keys revision: -1\n": `line 1: the revision "-1" is not a positive number`,
	} {
		if _, err := trust.ParsePins([]byte(text + string(pins))); err == nil || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
