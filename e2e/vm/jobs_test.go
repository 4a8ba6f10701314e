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

// limit is the maximum duration of a job. TCG needs most of it.
var limit = flag.Duration("limit", 60*time.Minute, "how long each job may take")

// inside selects the tests that a job runs, like -run.
var inside = flag.String("inside", ".", "tests to run inside the machine, as -run has them")

// machine returns the machine of hack/setup-vm.sh. It skips the test if a part is missing, or fails
// it with REQUIRE_KERNEL=1.
func machine(t *testing.T) Machine {
	t.Helper()
	m, err := Find(KernelDir(), exec.LookPath)
	switch {
	case err == nil:
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	m.Console = filepath.Join(os.TempDir(), "hawser-vm-"+t.Name()+".log")
	return m
}

// modules are the modules that jobs need. The kernel would load them on demand and restart each
// nftables transaction for each module: that takes minutes in emulation. Modules that are built into
// the kernel may be missing.
const modules = "tun veth bridge vxlan wireguard vrf macvlan " +
	"nf_tables nft_chain_nat nft_ct nft_nat nft_masq nft_redir nft_reject_inet nft_hash nft_limit nft_log nft_fib_inet nft_numgen nf_conntrack_netlink " +
	"esp4 esp6 xfrm_user xfrm_interface seqiv gcm ghash_generic chacha20poly1305 sch_netem sch_tbf"

// job runs a script in the machine, in the root of the repository, and returns its output. $bin is
// the directory of the built programs. The test fails if the script fails. The console's output is
// in the file m.Console.
func job(t *testing.T, m Machine, bin, script string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *limit)
	defer cancel()
	begin := time.Now()
	out, err := m.Run(ctx, fmt.Sprintf("set -euo pipefail\ncd %q\nexport bin=%q inside=%q PATH=%q:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root REQUIRE_KERNEL=1 TMPDIR=/tmp HAWSER_E2E_PATIENCE=20\nmodprobe -a %s || true\n%s",
		root, bin, *inside, bin, modules, script))
	t.Logf("%s in the virtual machine; it printed %s", time.Since(begin).Round(time.Second), m.Console)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + tail(out))
	return out
}

// build builds programs and test programs ("TARGET.test=PACKAGE") into a directory that the machine
// can read.
func build(t *testing.T, what ...string) string {
	t.Helper()
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

var programs = []string{"hawser=cmd/hawser", "hawser-agent=cmd/hawser-agent", "hawser-traffic=e2e/traffic/hawser-traffic"}

// TestModules tests that the kernel has the modules of the other jobs.
func TestModules(t *testing.T) {
	job(t, machine(t), "", `
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

// TestKinds runs the tests of every kind of the agent's objects on a kernel with WireGuard.
func TestKinds(t *testing.T) {
	m := machine(t)
	bin := build(t, "kernel.test=nodeagent/kernel", "hawser-agent=cmd/hawser-agent")
	job(t, m, bin, `cd nodeagent/kernel && kernel.test -test.run Laws -test.timeout 10m`)
}

// TestTunnels runs the tests of every driver with the kernel's WireGuard and ESP.
func TestTunnels(t *testing.T) {
	m := machine(t)
	bin := build(t, "drivertest.test=nodeagent/driver/drivertest", "hawser-agent=cmd/hawser-agent")
	out := job(t, m, bin, `
export HAWSER_CABLETEST_AGENT=$bin/hawser-agent
cd nodeagent/driver/drivertest && drivertest.test -test.v -test.run "$inside" -test.parallel 1 -test.timeout 50m
`)
	if strings.Contains(out, "--- SKIP") {
		t.Error("something was skipped")
	}
}

// TestIPsec runs the agent's strongSwan tests with the kernel's ESP.
func TestIPsec(t *testing.T) {
	m := machine(t)
	bin := build(t, "ipsec.test=nodeagent/kernel/ipsec")
	job(t, m, bin, `cd nodeagent/kernel/ipsec && ipsec.test -test.v -test.run "$inside" -test.parallel 1 -test.timeout 50m`)
}

// TestSpeed compares WireGuard in the kernel with wireguard-go, each between two
// namespaces of one machine with one processor.
func TestSpeed(t *testing.T) {
	m := machine(t)
	bin := build(t, "hawser-agent=cmd/hawser-agent")
	job(t, m, bin, speed)
}

const speed = `
for end in a b; do ip netns add $end; ip -n $end link set lo up; wg genkey >/tmp/$end.key; wg pubkey </tmp/$end.key >/tmp/$end.pub; done
ip -n a link add eth0 type veth peer name eth0 netns b
ip -n a addr add 192.0.2.1/24 dev eth0; ip -n b addr add 192.0.2.2/24 dev eth0
ip -n a link set eth0 up; ip -n b link set eth0 up
# $1 device, $2 third number of the addresses, $3 port
tunnel() {
  for end in a b; do
    [ $end = a ] && other=b here=1 there=2 || { other=a here=2; there=1; }
    ip netns exec $end wg set $1$end listen-port $3 private-key /tmp/$end.key peer $(cat /tmp/$other.pub) endpoint 192.0.2.$there:$3 allowed-ips 10.0.$2.0/24
    ip -n $end addr add 10.0.$2.$here/24 dev $1$end; ip -n $end link set $1$end mtu 1420 up
  done
}
for end in a b; do ip -n $end link add kern$end type wireguard; done
tunnel kern 1 51821
for end in a b; do ip netns exec $end hawser-agent wireguard user$end & done
for end in a b; do for try in $(seq 300); do ip netns exec $end wg show user$end >/dev/null 2>&1 && break; sleep 0.2; done; done
tunnel user 2 51822
ip netns exec b iperf3 -s -D
measure() { ip netns exec a iperf3 -c $1 -t 5 -J | jq '.end.sum_received.bits_per_second / 1e6'; }
for round in 1 2 3; do
  k=$(measure 10.0.1.2); u=$(measure 10.0.2.2); n=$(measure 192.0.2.2)
  echo "speed: kernel $k, wireguard-go $u, without a tunnel $n Mbit/s, kernel / wireguard-go $(jq -n "$k / $u")"
done
kill %1 %2
`

// TestTour runs the tour of the README over WireGuard in the kernel.
func TestTour(t *testing.T) {
	m := machine(t)
	bin := build(t, append(programs, "e2e.test=e2e")...)
	out := job(t, m, bin, `
export HAWSER_E2E_BIN=$bin HAWSER_LAB_DIR=/tmp/lab
`+patient+`
hawser lab up -f $HAWSER_E2E_TOPOLOGY -w workloads --timeout 30m
for try in $(seq 1800); do hawser show connections >connections.txt; grep -q ' connected' connections.txt && break; sleep 0.2; done
cat connections.txt
hawser lab down
`+tour)
	if !strings.Contains(out, "wireguard (kernel)") || strings.Contains(out, "userspace") {
		t.Error("the tunnels are not the kernel's")
	}
}

// patient writes the complete topology with a longer probe interval. An emulated agent cannot
// answer four probes a second on each link.
const patient = `export HAWSER_E2E_TOPOLOGY=/tmp/patient.yaml
sed 's/^    interval: 250ms/    interval: 5s/' docs/clusterset.full.yaml >$HAWSER_E2E_TOPOLOGY
grep -q 'interval: 5s' $HAWSER_E2E_TOPOLOGY
`

const tour = `cd e2e && e2e.test -test.v -test.run 'TestScripts/tour$' -test.timeout 50m`

// TestNoIPv6 runs the flat example on a kernel without IPv6: no addresses, sockets or sysctls of it
// exist.
func TestNoIPv6(t *testing.T) {
	m := machine(t)
	m.Options = "ipv6.disable=1"
	bin := build(t, programs...)
	job(t, m, bin, `
if [ -e /proc/net/if_inet6 ] || ping -6 -c 1 ::1; then echo "this kernel has IPv6"; exit 1; fi
export HAWSER_LAB_DIR=/tmp/lab
sed 's/^spec:/spec:\n  health: {interval: 5s, misses: 3}/' examples/flat/clusterset.yaml >/tmp/flat.yaml
hawser lab up -f /tmp/flat.yaml -w examples/flat/workloads --timeout 30m
for try in $(seq 100); do
  hawser lab exec c1/default/client -- curl -s -m 30 web.shop.svc.clusterset.local >answer || true
  grep -q '"cluster": *"c2"' answer && break
  sleep 1
done
hawser show all
cat answer
grep -q '"cluster": *"c2"' answer
hawser lab down
`)
}
