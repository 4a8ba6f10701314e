package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"hawser.dev/hawser/lab/netnsexec"
)

// plantScript creates one foreign kernel object of every kind on a node: as similar to
// Hawser's as possible, and in Hawser's routing tables where these are shared.
const plantScript = `set -e
six() { [ ! -e /proc/sys/net/ipv6 ] || ip -6 "$@"; }
ip link add foreign0 address 02:00:00:00:00:73 type bridge
ip addr add 192.0.2.1/24 dev foreign0
ip link set foreign0 up
ip neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev foreign0 nud permanent
for table in main 7299 7300 7301 7303; do
  ip route add 198.51.100.0/24 via 192.0.2.7 dev foreign0 proto 99 table $table
done
six addr add 2001:db8:f::1/64 dev foreign0 nodad
six neigh add 2001:db8:f::7 lladdr 02:00:00:00:00:07 dev foreign0 nud permanent
for table in main 7300 7301; do
  six route add 2001:db8:ff::/48 via 2001:db8:f::7 dev foreign0 proto 99 table $table
done
six rule add pref 7310 to 2001:db8:ff::/48 lookup 7301 protocol 99
ip rule add pref 7298 to 198.51.100.0/24 lookup 7303 protocol 99
ip rule add pref 7310 fwmark 0x7300 lookup 7303 protocol 99
nft -f - <<'NFT'
table inet foreign {
  set hosts { type ipv4_addr; elements = { 198.51.100.1, 198.51.100.2 } }
  chain input {
    type filter hook input priority -10
    ip saddr @hosts drop
  }
}
table ip hawser_not {
  chain postrouting {
    type nat hook postrouting priority 90
    ip saddr 198.51.100.0/24 masquerade
  }
}
NFT
echo 2 > /proc/sys/net/ipv4/conf/foreign0/rp_filter
echo 1 > /proc/sys/net/ipv4/conf/foreign0/log_martians
echo 66 > /proc/sys/net/ipv4/ip_default_ttl
`

// showScript prints the objects of plantScript. It omits rules of protocol 74, which Hawser creates
// for milliseconds.
const showScript = `
ip -d -o link show foreign0 | grep -o 'foreign0.*mtu [0-9]*'
ip -o addr show dev foreign0 to 192.0.2.0/24 | cut -d ' ' -f 2-
six() { [ ! -e /proc/sys/net/ipv6 ] || ip -6 "$@"; }
six -o addr show dev foreign0 to 2001:db8:f::/64 | cut -d ' ' -f 2-
six route show table all proto 99
six rule show | grep -w -e '^7310:'
ip neigh show dev foreign0 nud permanent
ip route show table all proto 99
ip rule show | grep -w -e '^7298:' -e '^7310:' -e '^0:' -e '^32766:' | grep -v -w 'proto 74'
nft list table inet foreign
nft list table ip hawser_not
cat /proc/sys/net/ipv4/conf/foreign0/rp_filter /proc/sys/net/ipv4/conf/foreign0/log_martians /proc/sys/net/ipv4/ip_default_ttl
true
`

// foreign checks that foreign objects on every node do not change.
type foreign struct {
	lab  *chaosLab
	want string // output of showScript, the same on every node
}

// create creates the objects on the given nodes.
func (f *foreign) create(ctx context.Context, nodes ...string) error {
	var errs []error
	for _, id := range nodes {
		if _, err := f.onNode(ctx, id, plantScript); err != nil {
			errs = append(errs, err)
			continue
		}
		have, err := f.onNode(ctx, id, showScript)
		if err == nil && f.want != "" && have != f.want {
			err = fmt.Errorf("foreign objects of %s differ right after their creation: %s", id, firstDifference(f.want, have))
		}
		if f.want == "" {
			f.want = have
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// check returns the changed objects of the given nodes.
func (f *foreign) check(ctx context.Context, nodes ...string) []string {
	var out []string
	for _, id := range nodes {
		have, err := f.onNode(ctx, id, showScript)
		switch {
		case err != nil:
			out = append(out, err.Error())
		case have != f.want:
			out = append(out, fmt.Sprintf("foreign objects of %s: %s", id, firstDifference(f.want, have)))
		}
	}
	return out
}

func (f *foreign) onNode(ctx context.Context, id, script string) (string, error) {
	at, err := f.lab.client.ExecAt(ctx, id)
	if err != nil {
		return "", err
	}
	var out []byte
	err = netnsexec.Do(at.Net, func() error {
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		// The child is forked from this thread, so it is in the namespace too.
		out, err = cmd.Output()
		if err != nil {
			return fmt.Errorf("node %s: %w: %s", id, err, stderr.Bytes())
		}
		return nil
	})
	return string(out), err
}

// firstDifference describes the first line that differs.
func firstDifference(want, have string) string {
	a, b := strings.Split(want, "\n"), strings.Split(have, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("line %d is %q, was %q", i+1, y, x)
		}
	}
	return "nothing"
}
