//go:build !race

package reconciler

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// publicBlock returns the armored public part of a key.
func publicBlock(t *testing.T, keys ...*openpgp.Entity) string {
	t.Helper()
	raw, err := os.ReadFile(armored(t, openpgp.PublicKeyType, func(w *bytes.Buffer) error {
		for _, key := range keys {
			if err := key.Serialize(w); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw) + "\n"
}

// signOpenPGP signs the newest commit, as git commit -S does with gpg.
func (g *testEnv) signOpenPGP(key *openpgp.Entity, config *packet.Config) {
	g.t.Helper()
	g.signAs(func(raw []byte) (string, error) {
		var out bytes.Buffer
		err := openpgp.ArmoredDetachSign(&out, key, bytes.NewReader(raw), config)
		return out.String(), err
	})
}

func (g *testEnv) signAs(sign func(raw []byte) (string, error)) {
	g.t.Helper()
	git(g.t, g.work, "reset", "-q", "--hard", withSignature(g.t, g.work, sign))
	g.push("-f", "main")
}

// TestOpenPGPCommits checks that a commit requires a signature by an OpenPGP key. The key must be
// in the file of the parent commit and valid today.
func TestOpenPGPCommits(t *testing.T) {
	t.Parallel()
	at := func(when time.Time, lifetime time.Duration) *packet.Config {
		return &packet.Config{Time: func() time.Time { return when }, KeyLifetimeSecs: uint32(lifetime / time.Second)}
	}
	old := time.Now().Add(-48 * time.Hour)
	ann, _ := newOpenPGP(t, nil, "")
	bob, _ := newOpenPGP(t, nil, "")
	expired, _ := newOpenPGP(t, at(old, time.Hour), "")
	revoked, file := newOpenPGP(t, at(old, 0), "")
	export, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer export.Close()
	ended, err := openpgp.ReadArmoredKeyRing(export) // the holder still uses the key
	if err == nil {
		err = ended[0].RevokeKey(packet.KeyCompromised, "lost", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := newTestEnv(t, true)
	ring := publicBlock(t, ann, expired) + publicBlock(t, ended[0])
	g.commit("allowed_signers", ring)
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	git(t, g.work, "pull", "-q", "--rebase", g.repo, "main")

	g.commit(TopologyFile, signedTopology("g2", "g1"))
	unsigned := git(t, g.work, "rev-parse", "HEAD")
	again := func() { git(t, g.work, "reset", "-q", "--hard", unsigned) }
	for _, c := range []struct {
		name   string
		key    *openpgp.Entity
		config *packet.Config
		says   string
	}{
		{"another key", bob, nil, "it is signed by OpenPGP key " + bob.PrimaryKey.KeyIdString() + ", which is not there"},
		{"expired, with a date before that", expired, at(old, 0), "which is no longer valid: openpgp: key expired"},
		{"revoked, with a date before that", revoked, at(old, 0), "which is no longer valid: openpgp: signature made by revoked key"},
	} {
		again()
		g.signOpenPGP(c.key, c.config)
		g.mustDistrust(c.says)
	}
	for _, c := range []struct {
		name string
		sign func(raw []byte, out *bytes.Buffer) error
		says string
	}{
		{"of another commit", func(raw []byte, out *bytes.Buffer) error {
			return openpgp.ArmoredDetachSign(out, ann, strings.NewReader(string(raw)+"more"), nil)
		}, "its signature does not hold: "},
		{"of text", func(raw []byte, out *bytes.Buffer) error {
			return openpgp.ArmoredDetachSignText(out, ann, bytes.NewReader(raw), nil)
		}, "its OpenPGP signature is of text"},
		{"a key instead", func(_ []byte, out *bytes.Buffer) error {
			_, err := out.WriteString(publicBlock(t, ann))
			return err
		}, "read its OpenPGP signature: it is a PGP PUBLIC KEY BLOCK"},
		{"noise", func(_ []byte, out *bytes.Buffer) error {
			_, err := out.WriteString("-----BEGIN PGP SIGNATURE-----\n\nnoise\n-----END PGP SIGNATURE-----")
			return err
		}, "OpenPGP"},
		{"of X.509", func(_ []byte, out *bytes.Buffer) error {
			_, err := out.WriteString("-----BEGIN SIGNED MESSAGE-----\n\nMIAG\n-----END SIGNED MESSAGE-----")
			return err
		}, "which is neither of SSH nor of OpenPGP (git config gpg.format)"},
	} {
		again()
		g.signAs(func(raw []byte) (string, error) {
			var out bytes.Buffer
			err := c.sign(raw, &out)
			return out.String(), err
		})
		g.mustDistrust(c.says)
	}

	// Ann adds Bob and removes herself. The file can also contain an SSH key.
	again()
	g.signOpenPGP(ann, nil)
	g.mustPass()
	carol := newPerson(t, "carol")
	g.pull()
	g.write("allowed_signers", carol.line()+publicBlock(t, bob))
	git(t, g.work, "commit", "-q", "-m", "Bob and Carol")
	unsigned = git(t, g.work, "rev-parse", "HEAD")
	g.signOpenPGP(bob, nil)
	g.mustDistrust("which is not there")
	again()
	g.signOpenPGP(ann, nil)
	g.mustPass()
	g.commit("README", "one")
	second := git(t, g.work, "rev-parse", "HEAD~1")
	g.signOpenPGP(ann, nil)
	g.mustDistrust("which is not there")
	git(t, g.work, "reset", "-q", "--hard", second)
	g.push("-f", "main")
	g.commit("README", "one")
	g.signOpenPGP(bob, nil)
	g.commit("README", "two")
	g.sign(carol)
	g.mustPass()
}

// TestOpenPGPSigners checks the signers in a key ring, and the errors for invalid key rings.
func TestOpenPGPSigners(t *testing.T) {
	t.Parallel()
	ann, file := newOpenPGP(t, nil, "")
	bob, _ := newOpenPGP(t, nil, "")
	short, _ := newOpenPGP(t, &packet.Config{RSABits: 1024, Algorithm: packet.PubKeyAlgoRSA}, "")
	private, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, id := publicBlock(t, ann), fmt.Sprintf("%X", ann.PrimaryKey.Fingerprint)

	signers, err := parseSigners([]byte("# ours\na@b,c openpgp\n\n" + block + "d namespaces=\"git\" openpgp\n" + publicBlock(t, bob)))
	if err != nil || len(signers) != 2 || signers[0].key != "openpgp:"+id || signers[0].line != 2 ||
		strings.Join(signers[0].principals, " ") != "a@b c" || !signers[0].signsCommits || !signers[1].signsCommits {
		t.Errorf("got %+v, %v", signers, err)
	}
	if signers, err = parseSigners([]byte(publicBlock(t, ann, bob))); err != nil || len(signers) != 2 || signers[0].principals[0] != id {
		t.Errorf("got %+v, %v", signers, err)
	}

	for name, c := range map[string]struct{ text, says string }{
		"a private key": {string(private), "line 1: this is a private key, and everyone who can read the file has it now: revoke it, " +
			"and put a public one here (gpg --armor --export KEYID)"},
		"no end":        {"# x\n" + strings.Split(block, "-----END")[0], "line 2: the OpenPGP block has no end"},
		"a signature":   {strings.ReplaceAll(block, "PUBLIC KEY BLOCK", "SIGNATURE"), "line 1: this is a PGP SIGNATURE and no key: gpg --armor --export KEYID writes one"},
		"twice":         {block + block, fmt.Sprintf("line %d: openpgp:%s is in line 1 already: keep the newer export only, with all principals in one line before it", strings.Count(block, "\n")+1, id)},
		"short":         {publicBlock(t, short), fmt.Sprintf("line 1: openpgp:%X has an RSA key of 1024 bits: at least 2048 are needed", short.PrimaryKey.Fingerprint)},
		"no block":      {"a openpgp\n", "line 1: no OpenPGP block follows: gpg --armor --export KEYID writes one"},
		"another line":  {"a openpgp\nb openpgp\n" + block, "line 1: no OpenPGP block follows: gpg --armor --export KEYID writes one"},
		"an option":     {"a valid-before=\"1\" openpgp\n" + block, "line 1: option valid-before is not used here: remove it, and the key when its time is over"},
		"no commits":    {"a namespaces=\"file\" openpgp\n" + block, "no key in it may sign commits"},
		"a binary ring": {"\x99\x01\xff", "it is not text: gpg --armor --export KEYID writes an OpenPGP key ring as text"},
	} {
		if _, err := parseSigners([]byte(c.text)); err == nil || err.Error() != c.says {
			t.Errorf("%s: got %v, want %s", name, err, c.says)
		}
	}
}

// TestWeakCommitSignatures checks that weak keys, weak hashes and future dates are refused with the
// reason. A signer's clock can be slightly ahead.
func TestWeakCommitSignatures(t *testing.T) {
	t.Parallel()
	const text = "tree 0\n\nmessage\n"
	now := time.Now().Truncate(time.Second)
	at := func(when time.Time) *packet.Config {
		return &packet.Config{Time: func() time.Time { return when }}
	}
	key := func(config *packet.Config) *openpgp.Entity {
		entity, _ := newOpenPGP(t, config, "")
		return entity
	}
	good, future := key(at(now.Add(-time.Hour))), key(at(now.Add(time.Hour)))
	young := key(at(now.Add(time.Second))) // made after the pass began
	short := key(&packet.Config{RSABits: 1024, Algorithm: packet.PubKeyAlgoRSA, Time: func() time.Time { return now }})
	var ring []allowedSigner
	for _, k := range []*openpgp.Entity{good, future, young, short} {
		ring = append(ring, allowedSigner{key: openPGPKeyID(k), openPGP: k, signsCommits: true})
	}
	byPGP := func(k *openpgp.Entity, config *packet.Config) string {
		t.Helper()
		var out bytes.Buffer
		if err := openpgp.ArmoredDetachSign(&out, k, strings.NewReader(text), config); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// weak replaces the hash in a signature. The hash is the fourth byte of the body, after
	// version 4, type 0 and the key algorithm (RFC 9580, section 5.2.3).
	weak := func(hash byte) string {
		t.Helper()
		block, err := armor.Decode(strings.NewReader(byPGP(good, at(now))))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(block.Body)
		if err != nil {
			t.Fatal(err)
		}
		raw[bytes.Index(raw, []byte{4, 0})+3] = hash
		var out bytes.Buffer
		w, err := armor.Encode(&out, openpgp.SignatureType, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(raw)
		_ = w.Close()
		return out.String()
	}
	bySSH := func(bits int, algorithm string) string {
		t.Helper()
		private, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.NewSignerFromKey(private)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha512.Sum512([]byte(text))
		signed := append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Sum string }{gitNamespace, "", "sha512", string(sum[:])})...)
		signature, err := signer.(ssh.AlgorithmSigner).SignWithAlgorithm(rand.Reader, signed, algorithm)
		if err != nil {
			t.Fatal(err)
		}
		return string(sshsig.Armor(&sshsig.Signature{Version: 1, PublicKey: signer.PublicKey(), Namespace: gitNamespace, HashAlgorithm: sshsig.HashSHA512, Signature: signature}))
	}
	for _, tt := range []struct{ name, armored, want string }{
		{"OpenPGP", byPGP(good, at(now)), ""},
		{"OpenPGP, signed after now was read", byPGP(good, at(now.Add(time.Second))), ""},
		{"OpenPGP, by a key made after now was read", byPGP(young, at(now.Add(2*time.Second))), ""},
		{"OpenPGP, by a clock that is 4 minutes ahead", byPGP(good, at(now.Add(4*time.Minute))), ""},
		{"OpenPGP, by a clock that is 6 minutes ahead", byPGP(good, at(now.Add(6*time.Minute))),
			"its OpenPGP signature has the date " + now.Add(6*time.Minute).UTC().Format(time.RFC3339) + ", but the time here is " + now.UTC().Format(time.RFC3339) + ": set the clocks of both machines"},
		{"OpenPGP, by a key of the future", byPGP(future, at(now.Add(time.Hour))), "set the clocks of both machines"},
		{"OpenPGP, expired", byPGP(good, &packet.Config{Time: func() time.Time { return now.Add(-time.Minute) }, SigLifetimeSecs: 10}), "which is no longer valid: openpgp: signature expired"},
		{"OpenPGP, MD5", weak(1), "which is not there"},
		{"OpenPGP, RIPEMD-160", weak(3), "which is not there"},
		{"SSH, RSA", bySSH(2048, ssh.KeyAlgoRSASHA512), ""},
		{"SSH, RSA with SHA-1", bySSH(2048, ssh.KeyAlgoRSA), `its SSH signature does not count: invalid signature format "ssh-rsa": expected "rsa-sha2-256" or "rsa-sha2-512"`},
		{"SSH, a short RSA key", bySSH(1024, ssh.KeyAlgoRSASHA512), "its signature does not hold: its key does not count: it is an RSA key of 1024 bits, at least 2048 are needed: use Ed25519"},
	} {
		_, err := verifySignature(ring, gitNamespace, []byte(text), tt.armored, now)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	private, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseSigners([]byte("# ours\na@b " + string(ssh.MarshalAuthorizedKey(public)))); err == nil ||
		err.Error() != "line 2: the key cannot sign: it is an RSA key of 1024 bits, at least 2048 are needed: use Ed25519" {
		t.Errorf("a file with a short RSA key: %v", err)
	}
}

func FuzzSigners(f *testing.F) {
	f.Add([]byte("a namespaces=\"git\" openpgp\n-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxjMEAAAAABYJKwYBBAHaRw8BAQdA\n-----END PGP PUBLIC KEY BLOCK-----\n"))
	f.Add([]byte("a@b ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtzEGcr4QmB/89Y4o3J51QVr1TJDQrttvLFE2xpFhYc\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		signers, err := parseSigners(raw)
		if err == nil && len(signers) == 0 {
			t.Error("no key and no error")
		}
	})
}
