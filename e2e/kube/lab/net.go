package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/lab/netnsexec"
)

// internet is the network namespace between the clusters. It routes between the machines' networks,
// and has no routes to pods.
const internet = "internet"

// run runs a command in a machine's network namespace.
func (l *Lab) run(space, input string, argv ...string) error {
	return netnsexec.Do(l.netnsPath(space), func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(input)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), space, err, strings.TrimSpace(out.String()))
		}
		return nil
	})
}

func (l *Lab) createInternet() error {
	if err := netnsexec.Prepare(l.path("net")); err != nil {
		return err
	}
	if err := l.createNetNS(internet); err != nil {
		return err
	}
	var lines strings.Builder
	for i := range l.Clusters {
		fmt.Fprintf(&lines, "link add lan%[1]d type bridge\nlink set lan%[1]d up\n", i+1)
		for _, p := range l.routerPrefixes(i + 1) {
			fmt.Fprintf(&lines, "address add %s dev lan%d%s\n", p, i+1, nodadOption(p.Addr()))
		}
	}
	return l.run(internet, lines.String(), "ip", "-batch", "-")
}

func (l *Lab) createNetNS(name string) error {
	if err := netnsexec.Create(l.netnsPath(name)); err != nil {
		return err
	}
	settings := map[string]string{"net/ipv4/ip_forward": "1"}
	if l.Families != "ipv4" {
		settings["net/ipv6/conf/all/forwarding"] = "1"
	}
	return netnsexec.Do(l.netnsPath(name), func() error { return netnsexec.Sysctls(settings) })
}

// nodadOption returns the option for ip(8) that disables duplicate address detection, or an empty
// string for IPv4.
func nodadOption(addr netip.Addr) string {
	if addr.Is6() {
		return " nodad"
	}
	return ""
}

// connectMachine creates a machine's namespace, with a link to its cluster's network and routes to
// the pods of the cluster's nodes.
func (l *Lab) connectMachine(n Node) error {
	if err := l.createNetNS(n.Name); err != nil {
		return err
	}
	if err := l.addVethPair(n.Name); err != nil {
		return err
	}
	outside := fmt.Sprintf("link set %s master lan%d up\n", n.Name, n.Index)
	if err := l.run(internet, outside, "ip", "-batch", "-"); err != nil {
		return err
	}
	return l.run(n.Name, l.machineNetworkBatch(n), "ip", "-batch", "-")
}

// machineNetworkBatch returns the lines for ip(8) for a machine's end of the link.
func (l *Lab) machineNetworkBatch(n Node) string {
	lines := "link set eth0 up\n"
	for i, router := range l.routerPrefixes(n.Index) {
		lines += fmt.Sprintf("address add %s/%d dev eth0%s\nroute replace default via %s\n",
			n.Addrs[i], router.Bits(), nodadOption(n.Addrs[i]), router.Addr())
	}
	for _, other := range l.peers(n) {
		if other.Number > 0 {
			lines += l.podRouteBatch(other)
		}
	}
	return lines
}

// podRouteBatch returns the lines that route a node's pods to it, or remove the routes of a node
// without addresses. It returns none if the network of the pods does this.
func (l *Lab) podRouteBatch(n Node) string {
	lines := ""
	if !l.CNI.Routed {
		return lines
	}
	for i, pods := range l.nodePodPrefixes(n) {
		if len(n.Addrs) == 0 {
			lines += fmt.Sprintf("route del %s\n", pods)
		} else {
			lines += fmt.Sprintf("route replace %s via %s\n", pods, n.Addrs[i])
		}
	}
	return lines
}

// peers returns the other machines of a machine's cluster.
func (l *Lab) peers(n Node) []Node {
	return slices.DeleteFunc(slices.Clone(l.Machines), func(other Node) bool {
		return other.Cluster != n.Cluster || other.Name == n.Name
	})
}

// updateRoutes updates the routes to a node's pods on the other running machines of its cluster.
func (l *Lab) updateRoutes(n Node) error {
	for _, other := range l.peers(n) {
		if _, err := l.record(other.Name); err != nil {
			continue // a stopped machine gets the routes at its start
		}
		if err := l.run(other.Name, l.podRouteBatch(n), "ip", "-batch", "-"); err != nil {
			return err
		}
	}
	return nil
}

// addVethPair creates a veth pair: eth0 in the machine's namespace, and its other end in the
// internet namespace.
func (l *Lab) addVethPair(name string) error {
	peer, err := os.Open(l.netnsPath(internet))
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer peer.Close()
	return netnsexec.Do(l.netnsPath(name), func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(int(peer.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("link %s to the internet: %w", name, err)
		}
		return nil
	})
}

// deleteVeth deletes a machine's link in the internet. The kernel may destroy the namespace with
// the other end later, but the name is needed again at once.
func (l *Lab) deleteVeth(name string) error {
	return netnsexec.Do(l.netnsPath(internet), func() error {
		link, err := netlink.LinkByName(name)
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			return nil
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("unplug %s: %w", name, err)
		}
		return nil
	})
}
