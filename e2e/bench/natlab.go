package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
)

// Addresses of the lab for new connections. Clusterset IPs are translated to
// exports of another cluster, pods to global addresses, one to one.
const (
	natClient     = "10.70.0.2"
	natPods       = "10.70.0.0/16"
	natGlobal     = "242.1.0.0/16"
	natVIPs       = "243.0.0.0/16"
	natExports    = "242.2.0.0/16"
	natPort       = 80
	natTunnelNear = "241.0.0.1"
	natTunnelFar  = "241.0.0.2"
)

// natLab is a pod's namespace, a gateway's, whose tunnel is a veth pair, and one
// that has every export address of another cluster.
type natLab struct{ client, node, server *space }

func newNatLab() (*natLab, error) {
	l := &natLab{}
	for _, at := range []**space{&l.client, &l.node, &l.server} {
		s, err := newSpace()
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		*at = s
	}
	if err := l.wire(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *natLab) wire() error {
	if err := errors.Join(join(l.client, "eth0", l.node, "pod0"), join(l.node, "hw-wg1", l.server, "eth0")); err != nil {
		return err
	}
	return errors.Join(
		l.client.address("eth0", natClient+"/16"),
		l.node.address("pod0", "10.70.0.1/16"),
		l.node.address("hw-wg1", natTunnelNear+"/24"),
		l.server.address("eth0", natTunnelFar+"/24"),
		l.client.route("0.0.0.0/0", "10.70.0.1"),
		l.node.route(natExports, natTunnelFar),
		l.server.route("0.0.0.0/0", natTunnelNear),
		l.server.local(natExports),
		l.node.sysctl("ipv4/ip_forward", "1"),
		l.client.sysctl("ipv4/ip_local_port_range", "1024 65535"),
		l.server.sysctl("core/somaxconn", "4096"),
	)
}

func (l *natLab) close() error {
	var errs []error
	for _, s := range []*space{l.client, l.node, l.server} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

func nth(prefix string, n int) netip.Addr {
	base := netip.MustParsePrefix(prefix).Addr().As4()
	v := (uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8 | uint32(base[3])) + uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// natElements is what a gateway holds for n exports of other clusters, each with
// so many slots.
func natElements(n, slots int) []desired.Element {
	add := func(out []desired.Element, set, id, value string) []desired.Element {
		return append(out, desired.Element{Set: set, Family: 4, ID: id, Value: value})
	}
	var out []desired.Element
	out = add(out, desired.SetPods, natPods, "")
	out = add(out, desired.SetMapped, natPods, natGlobal)
	out = add(out, desired.SetUnmapped, natGlobal, natPods)
	out = add(out, desired.SetPodBlocks, natGlobal, "")
	out = add(out, desired.SetRemote, natExports, "")
	out = add(out, desired.SetPools, natVIPs, "")
	out = add(out, desired.SetTunnels, natTunnelNear, "")
	for i := range n {
		vip, export := nth(natVIPs, i+1).String(), nth(natExports, i+1).String()
		service := vip + " . tcp . " + strconv.Itoa(natPort)
		out = add(out, desired.SetServices, service, desired.PickChain(slots, false)+"4")
		out = add(out, desired.SetEcho, vip, export)
		out = add(out, desired.SetOffers, export+" . tcp . "+strconv.Itoa(natPort), "")
		for slot := range slots {
			out = add(out, desired.SetSlots, service+" . "+strconv.Itoa(slot), export+" . "+strconv.Itoa(natPort))
		}
	}
	return out
}

// hawser brings the node's table to n exports and a quota of connections for each pod,
// through the kinds that the agent itself uses.
func (l *natLab) hawser(ctx context.Context, n, slots, quota int) error {
	opts := kernel.NFTOptions{NetNS: int(l.node.handle)}
	tables, elements := kernel.NewTables(opts), kernel.NewElements(opts)
	table := []desired.Table{tables.Adopt(desired.Table{Name: desired.TableName, MSS4: 1380, MSS6: 1360, Connections: quota}, desired.Table{})}
	if err := bring[desired.Table](ctx, tables, table); err != nil {
		return err
	}
	return bring[desired.Element](ctx, elements, natElements(n, slots))
}

// bring makes what exists equal to want.
func bring[S diff.Spec](ctx context.Context, kind interface {
	Observe(context.Context) ([]S, error)
	Apply(context.Context, []diff.Change[S]) error
}, want []S) error {
	have, err := kind.Observe(ctx)
	if err != nil {
		return err
	}
	changes, err := diff.Compute(want, have)
	if err != nil {
		return err
	}
	return kind.Apply(ctx, changes)
}

// iptables gives the node one rule for each of n addresses, written with
// iptables-restore of the given flavour ("nft" or "legacy").
func (l *natLab) iptables(flavour string, n int) error {
	var rules strings.Builder
	rules.WriteString("*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n")
	for i := range n {
		fmt.Fprintf(&rules, "-A PREROUTING -d %s/32 -p tcp -m tcp --dport %d -j DNAT --to-destination %s:%d\n",
			nth(natVIPs, i+1), natPort, nth(natExports, i+1), natPort)
	}
	fmt.Fprintf(&rules, "-A POSTROUTING -s %s -o hw-wg1 -j NETMAP --to %s\nCOMMIT\n", natPods, natGlobal)
	path, err := exec.LookPath("iptables-" + flavour + "-restore")
	if err != nil {
		return err
	}
	return l.node.run(rules.String(), path)
}
