package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Changes of running clusters: killed programs, added, removed and renamed nodes, and changed
// addresses.

// kill ends a program of a machine at once (SIGKILL), without a restart until revive.
func (l *Lab) kill(ctx context.Context, machine, program string) error {
	if err := os.WriteFile(l.holdFile(machine, program), nil, 0o644); err != nil {
		return fmt.Errorf("hold %s of %s: %w", program, machine, err)
	}
	return l.killProgram(ctx, machine, program)
}

// revive permits the restart of a killed program.
func (l *Lab) revive(machine, program string) error {
	err := os.Remove(l.holdFile(machine, program))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s of %s was not killed", program, machine)
	}
	return err
}

// holdFile returns the file that prevents the start of a program. The scripts check it.
func (l *Lab) holdFile(machine, program string) string {
	return l.path("machines", machine, "hold."+program)
}

// killProgram kills a program, which restarts unless its hold file exists.
func (l *Lab) killProgram(ctx context.Context, machine, program string) error {
	r, err := l.record(machine)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "nsenter", "--all", "--target", strconv.Itoa(r.Process.PID),
		"sh", "-c", `kill -KILL $(pidof "$0")`, program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kill %s of %s: %w: %s", program, machine, err, out)
	}
	return nil
}

// addNode adds a node to a cluster, and returns its name.
func (l *Lab) addNode(ctx context.Context, cluster string) (string, error) {
	index := slices.Index(l.Clusters, cluster) + 1
	if index == 0 {
		return "", fmt.Errorf("no cluster %q: there are %v", cluster, l.Clusters)
	}
	number := 1
	for _, m := range l.Machines {
		if m.Cluster == cluster {
			number = max(number, m.Number+1)
		}
	}
	n := l.newNode(cluster, index, number)
	l.Machines = append(l.Machines, n)
	return n.Name, errors.Join(l.save(), l.startNode(ctx, n))
}

// startNode starts a node that has not joined its cluster, and waits until it is ready.
func (l *Lab) startNode(ctx context.Context, n Node) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	a, err := openAuthority(l.path("pki", n.Cluster))
	if err == nil {
		err = a.writeKubeletConfig(l, n)
	}
	if err == nil {
		err = l.startMachine(n)
	}
	if err == nil {
		err = l.updateRoutes(n)
	}
	if err == nil {
		err = l.awaitNode(ctx, n)
	}
	if err == nil {
		_, err = l.kubectl(ctx, n.Cluster, "", "wait", "--for=condition=Ready", "node", n.As, "--timeout="+stepTimeout.String())
	}
	return err
}

// removeNode removes a node from its cluster, with its disk.
func (l *Lab) removeNode(ctx context.Context, n Node) error {
	if err := l.leaveCluster(ctx, n); err != nil {
		return err
	}
	l.Machines = slices.DeleteFunc(l.Machines, func(m Node) bool { return m.Name == n.Name })
	gone := n
	gone.Addrs = nil
	return errors.Join(l.save(), l.updateRoutes(gone), os.RemoveAll(l.path("machines", n.Name)))
}

// leaveCluster powers a node off and deletes its Node object.
func (l *Lab) leaveCluster(ctx context.Context, n Node) error {
	if n.Number == 0 {
		return fmt.Errorf("%s is a control plane", n.Name)
	}
	if err := l.powerOff(n.Name); err != nil {
		return err
	}
	_, err := l.kubectl(ctx, n.Cluster, "", "delete", "node", n.As, "--ignore-not-found")
	return err
}

// renameNode removes a node from its cluster and joins it with another name and the same disk.
func (l *Lab) renameNode(ctx context.Context, n Node, name string) error {
	if err := l.leaveCluster(ctx, n); err != nil {
		return err
	}
	n.As = name
	if err := l.update(n); err != nil {
		return err
	}
	return l.startNode(ctx, n)
}

// changeAddress changes the address of a running node in a family, like a DHCP server. Its kubelet
// and kube-proxy restart, everything else continues.
func (l *Lab) changeAddress(ctx context.Context, n Node, addr netip.Addr) error {
	for _, m := range l.Machines {
		if slices.Contains(m.Addrs, addr) {
			return fmt.Errorf("%s has the address %s", m.Name, addr)
		}
	}
	lans := l.routerPrefixes(n.Index)
	at := slices.IndexFunc(lans, func(lan netip.Prefix) bool { return lan.Contains(addr) })
	if at < 0 {
		return fmt.Errorf("%s is not in %s, the network of %s", addr, joinList(lans), n.Cluster)
	}
	n.Addrs = slices.Clone(n.Addrs)
	n.Addrs[at] = addr
	if err := l.update(n); err != nil {
		return err
	}
	if err := l.run(n.Name, "address flush dev eth0 scope global\n"+l.machineNetworkBatch(n), "ip", "-batch", "-"); err != nil {
		return err
	}
	if err := errors.Join(l.updateRoutes(n), l.writeAddress(n), l.killProgram(ctx, n.Name, "kubelet")); err != nil || l.Proxy == "none" || l.Proxy == networkProxy {
		return err
	}
	return l.killProgram(ctx, n.Name, "kube-proxy")
}

// setExternalAddress adds an external address to a node, like a cloud: packets to it are routed to
// the node, and the Node's status contains it. The kubelet restarts with an external cloud
// provider. With the zero address, setExternalAddress removes the external address.
func (l *Lab) setExternalAddress(ctx context.Context, n Node, addr netip.Addr) error {
	table, file := "outside-"+n.Name, l.path("machines", n.Name, "outside")
	if err := l.run(internet, "add table inet "+table+"\ndelete table inet "+table+"\n", "nft", "-f", "-"); err != nil {
		return err
	}
	if !addr.IsValid() {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("%s has no address outside: %w", n.Name, err)
		}
		return l.killProgram(ctx, n.Name, "kubelet") // it then writes only its own addresses
	}
	at := slices.IndexFunc(n.Addrs, func(own netip.Addr) bool { return own.Is4() == addr.Is4() })
	if at < 0 {
		return fmt.Errorf("%s has no address of the family of %s", n.Name, addr)
	}
	family := map[bool]string{true: "ip", false: "ip6"}[addr.Is4()]
	lead := fmt.Sprintf("table inet %s {\n chain in {\n  type nat hook prerouting priority dstnat\n  %s daddr %s dnat %s to %s\n }\n}\n",
		table, family, addr, family, n.Addrs[at])
	if err := l.run(internet, lead, "nft", "-f", "-"); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return fmt.Errorf("expose %s: %w", n.Name, err)
	}
	if err := l.killProgram(ctx, n.Name, "kubelet"); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"status": {"addresses": [{"type": "ExternalIP", "address": %q}]}}`, addr)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return l.retryKubectl(ctx, n.Cluster, "patch", "node", n.As, "--subresource=status", "-p", patch)
}

// writeAddress writes the addresses for the next start of the node's kubelet.
func (l *Lab) writeAddress(n Node) error {
	if err := os.WriteFile(l.path("machines", n.Name, "address"), []byte(joinList(n.Addrs)), 0o644); err != nil {
		return fmt.Errorf("write the address of %s: %w", n.Name, err)
	}
	return nil
}

// update saves a changed machine.
func (l *Lab) update(n Node) error {
	at := slices.IndexFunc(l.Machines, func(m Node) bool { return m.Name == n.Name })
	l.Machines[at] = n
	return l.save()
}

// openAuthority reads the files of newAuthority.
func openAuthority(dir string) (*authority, error) {
	var p pair
	var err error
	if p.certPEM, err = os.ReadFile(filepath.Join(dir, "ca.crt")); err == nil {
		p.keyPEM, err = os.ReadFile(filepath.Join(dir, "ca.key"))
	}
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	cert, _ := pem.Decode(p.certPEM)
	key, _ := pem.Decode(p.keyPEM)
	if cert == nil || key == nil {
		return nil, fmt.Errorf("read authority: no PEM in %s", dir)
	}
	if p.cert, err = x509.ParseCertificate(cert.Bytes); err == nil {
		p.key, err = x509.ParseECPrivateKey(key.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	return &authority{ca: p, dir: dir}, nil
}
