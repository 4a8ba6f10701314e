//go:build vm

package vm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limit is how long a job may take, of which TCG needs the most.
var limit = flag.Duration("limit", 15*time.Minute, "how long each job may take")

// machine skips, or fails where everything must be there.
func machine(t *testing.T) Machine {
	t.Helper()
	m, err := Find(Folder(), exec.LookPath)
	switch {
	case err == nil:
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return m
}

// job runs a script in the machine, at the root of the repository; $bin holds what
// was built. It fails the test when the script does.
func job(t *testing.T, bin, script string) string {
	t.Helper()
	m := machine(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *limit)
	defer cancel()
	begin := time.Now()
	out, err := m.Run(ctx, fmt.Sprintf("set -euo pipefail\ncd %q\nexport bin=%q PATH=%q:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root REQUIRE_KERNEL=1 TMPDIR=/tmp\n%s",
		root, bin, bin, script))
	t.Logf("%s in the virtual machine\n%s", time.Since(begin).Round(time.Second), tail(out))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// build puts programs and test programs ("TARGET.test=PACKAGE") into a folder that the machine sees.
func build(t *testing.T, what ...string) string {
	t.Helper()
	machine(t) // not for nothing
	dir := t.TempDir()
	for _, w := range what {
		name, source, _ := strings.Cut(w, "=")
		args := []string{"build", "-o", filepath.Join(dir, name), "hawser.dev/hawser/" + source}
		if strings.HasSuffix(name, ".test") {
			args = []string{"test", "-c", "-o", filepath.Join(dir, name), "hawser.dev/hawser/" + source}
		}
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

var programs = []string{"hawser=cmd/hawser", "hawser-agent=cmd/hawser-agent", "hawser-traffic=e2e/traffic"}

// TestModules: the kernel has what the others stand on.
func TestModules(t *testing.T) {
	job(t, "", `
uname -r
ip link add t-wireguard type wireguard
ip link add t-vrf type vrf table 10
ip link add t-xfrm type xfrm if_id 7
ip link add t-vxlan type vxlan id 7 dstport 4999
for family in "192.0.2.1 192.0.2.2" "2001:db8::1 2001:db8::2"; do
  set -- $family
  ip xfrm state add src $1 dst $2 proto esp spi 7 mode tunnel aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128
  ip xfrm state add src $1 dst $2 proto esp spi 8 mode tunnel aead 'rfc7539esp(chacha20,poly1305)' 0x$(printf '%072d' 1) 128
done
ip -br link
ip xfrm state count
`)
}

// TestKinds runs the laws of every kind of the agent's objects with a kernel that has WireGuard.
func TestKinds(t *testing.T) {
	bin := build(t, "kernel.test=nodeagent/kernel", "hawser-agent=cmd/hawser-agent")
	job(t, bin, `cd nodeagent/kernel && kernel.test -test.run Laws -test.timeout 10m`)
}

// TestTour is the tour of the README over WireGuard in the kernel.
func TestTour(t *testing.T) {
	bin := build(t, append(programs, "e2e.test=e2e")...)
	out := job(t, bin, `
export HAWSER_E2E_BIN=$bin HAWSER_LAB_DIR=/tmp/lab
hawser lab up -f clusterset.example.yaml -w workloads --timeout 10m
for try in $(seq 300); do hawser show connections >connections.txt; grep -q ' connected' connections.txt && break; sleep 0.2; done
cat connections.txt
hawser lab down
cd e2e && e2e.test -test.run 'TestScripts/tour$' -test.timeout 14m
`)
	if !strings.Contains(out, "wireguard (kernel)") || strings.Contains(out, "userspace") {
		t.Error("the tunnels are not the kernel's")
	}
}
