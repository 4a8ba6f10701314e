package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/kernel/inventory"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
)

// Inventory returns the kernel state of Hawser and of other programs, including some sysctls
// that Hawser sets. Parts that cannot be read are listed as errors.
func (ns *Namespace) Inventory(ctx context.Context, sysctls []string) inventory.Kernel {
	k := inventory.Kernel{At: time.Now().UTC(), Release: kernelRelease()}
	for _, read := range []func(context.Context, *inventory.Kernel) error{
		ns.readLinks, ns.readRules, ns.readRoutes, ns.readNeighbors, ns.readWireguards, ns.readRuleset,
	} {
		if err := read(ctx, &k); err != nil {
			k.Errors = append(k.Errors, err.Error())
		}
	}
	// Settings that affect packets, set by any program. Settings that this kernel lacks are
	// left out.
	names := append([]string{
		conntrackCount, conntrackMax, "net/netfilter/nf_conntrack_buckets", "net/netfilter/nf_conntrack_tcp_loose", "net/netfilter/nf_conntrack_tcp_be_liberal",
		"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/all/disable_ipv6",
		"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter", "net/ipv4/conf/all/src_valid_mark",
		"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
		"net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3", "net/ipv6/route/max_size",
	}, sysctls...)
	for _, l := range k.Links {
		names = append(names, "net/ipv4/conf/"+l.IfName+"/rp_filter", "net/ipv4/conf/"+l.IfName+"/forwarding")
	}
	k.Sysctls = map[string]string{}
	settings := NewSysctls(ns, "")
	for _, name := range names {
		if value, err := settings.read(name); err == nil {
			k.Sysctls[name] = value
		}
	}
	// 0 if the value is not a number.
	k.Conntrack.Count, _ = strconv.Atoi(k.Sysctls[conntrackCount])
	k.Conntrack.Max, _ = strconv.Atoi(k.Sysctls[conntrackMax])
	return k
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// readWireguards reads our WireGuard devices, including devices without a responding process.
func (ns *Namespace) readWireguards(ctx context.Context, k *inventory.Kernel) error {
	list, err := ns.links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range list {
		if !mayBeWireguard(l) {
			continue
		}
		d, err := ns.wg.Device(ctx, l.Attrs().Name)
		if errors.Is(err, userspacewg.ErrNoAnswer) {
			k.Wireguard = append(k.Wireguard, inventory.Wireguard{Link: l.Attrs().Name})
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read wireguard device %s: %w", l.Attrs().Name, err))
			continue
		}
		// Public fields only.
		out := inventory.Wireguard{Link: d.Name, Mode: "userspace", Port: d.ListenPort}
		if d.Type == wgtypes.LinuxKernel {
			out.Mode = "kernel"
		}
		if d.PrivateKey != (wgtypes.Key{}) {
			out.PublicKey = d.PublicKey.String()
		}
		for _, p := range d.Peers {
			state := readPeer(d.Name, p)
			peer := inventory.Peer{
				PublicKey: state.PublicKey, HasPSK: p.PresharedKey != (wgtypes.Key{}), Handshake: p.LastHandshakeTime.UTC(),
				RxBytes: p.ReceiveBytes, TxBytes: p.TransmitBytes, AllowedIPs: humanize.Strings(state.AllowedIPs),
			}
			if state.Endpoint.IsValid() {
				peer.Endpoint = state.Endpoint.String()
			}
			if state.Keepalive > 0 {
				peer.Keepalive = (time.Duration(state.Keepalive) * time.Second).String()
			}
			out.Peers = append(out.Peers, peer)
		}
		slices.SortFunc(out.Peers, func(a, b inventory.Peer) int { return strings.Compare(a.PublicKey, b.PublicKey) })
		k.Wireguard = append(k.Wireguard, out)
	}
	return errors.Join(errs...)
}

// sysctls with the number of connection tracking entries and their limit
const (
	conntrackCount = "net/netfilter/nf_conntrack_count"
	conntrackMax   = "net/netfilter/nf_conntrack_max"
)

// Conntrack returns the number of connection tracking entries in this network namespace and
// their limit. It is safe for concurrent use.
func (ns *Namespace) Conntrack() (entries, limit int, err error) {
	settings := NewSysctls(ns, "")
	for _, s := range []struct {
		name  string
		value *int
	}{{conntrackCount, &entries}, {conntrackMax, &limit}} {
		text, err := settings.read(s.name)
		if err != nil {
			return 0, 0, fmt.Errorf("read size of the connection table: %w", err)
		}
		if *s.value, err = strconv.Atoi(text); err != nil {
			return 0, 0, fmt.Errorf("read size of the connection table: %s is %q: %w", s.name, text, err)
		}
	}
	return entries, limit, nil
}
