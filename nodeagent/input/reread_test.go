package input

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestIdentityComesLate checks that a running gateway with sealed keys uses the identity when it
// appears. An example is a Secret that is created after the agents.
func TestIdentityComesLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"fabric", "keys", "identity", "state", "facts"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, raw []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := fabric.Encode(&fabric.Fabric{APIVersion: fabric.APIVersion, Name: "demo",
		Clusters: []fabric.Cluster{{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "gw"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := fabric.Compress(raw)
	if err != nil {
		t.Fatal(err)
	}
	write("fabric/"+fabricFile, packed)
	write("keys/"+keysFile, seal(t, fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: "g1"}, identity.Recipient()))
	in, err := Open(Config{
		Cluster: "g1", Node: "gw", FabricDir: filepath.Join(dir, "fabric"), StateDir: filepath.Join(dir, "state"), FactsDir: filepath.Join(dir, "facts"),
		KeysDir: filepath.Join(dir, "keys"), Identity: filepath.Join(dir, "identity", "identity.txt"),
		Log: slog.New(slog.DiscardHandler), Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	runInputs(t, in)
	keys := func() (out status.InputState) {
		for _, s := range in.States() {
			if s.Name == "keys" {
				out = s
			}
		}
		return out
	}
	for end := time.Now().Add(30 * time.Second); !watched(t, filepath.Join(dir, "identity")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the directory of the identity is not watched")
		}
	}
	if s := keys(); s.OK || s.Error == "" {
		t.Fatalf("without an identity the keys are %+v", s)
	}
	write("identity/identity.txt", []byte(identity.String()+"\n"))
	for end := time.Now().Add(30 * time.Second); !keys().OK; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("with an identity the keys are %+v", keys())
		}
	}
}

// watched reports whether this process has an inotify watch on a directory, as proc_pid_fdinfo(5)
// lists them.
func watched(t *testing.T, dir string) bool {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(" ino:%x ", info.Sys().(*syscall.Stat_t).Ino)
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		raw, _ := os.ReadFile(file) // some are closed meanwhile
		return strings.Contains(string(raw), "inotify wd:") && strings.Contains(string(raw), want)
	})
}
