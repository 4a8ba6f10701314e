// Command kubelab runs real Kubernetes clusters on this machine: each with etcd, the
// API server and its controllers, and nodes with kubelet, containerd, kube-proxy and
// CoreDNS. Every machine is a set of namespaces. On the host it has only one loopback port for each
// API server.
//
// `kubelab help` lists the commands.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/e2e/kube/cni"
	"hawser.dev/hawser/internal/hardening"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	err := hardening.CloseOnExec()
	if err == nil {
		err = run(ctx, os.Args[1:])
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		os.Exit(failed.ExitCode()) // a command of the user, which has printed its error
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubelab:", err)
		os.Exit(1)
	}
}

const usage = `usage: kubelab [--dir DIR] COMMAND [--dir DIR] ARGS...

up                        start clusters; see kubelab up --help
down                      remove everything, also after a crash
k CLUSTER ARGS...         kubectl
node NODE CMD...          run on a node, in its namespaces
net NODE|internet CMD...  run only in a network of the lab
stop|start NODE           power off and on
kill|revive NODE PROGRAM  kill a program, without a restart until revive
add CLUSTER               add a node; print its name
remove NODE               remove a node from its cluster
rename NODE NAME          let a node leave its cluster and join as NAME
address NODE ADDRESS      change the address of a running node
expose NODE [ADDRESS]     add an external address, in the Node's status; none: remove it
load [AGENT]              load another agent on all nodes; none: build the tree's
import ARCHIVE...         import images on all nodes
kubeconfig                print the path of the kubeconfig`

func run(ctx context.Context, args []string) error {
	dir, args, err := parseDir(cmp.Or(os.Getenv(DirEnv), DefaultDir), args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New(usage)
	}
	command := args[0]
	switch command {
	case "help":
		_, err := fmt.Println(usage)
		return err
	case "up":
		return runUp(ctx, dir, args[1:])
	}
	dir, args, err = parseDir(dir, args[1:])
	if err != nil {
		return err
	}
	if command == "down" && len(args) == 0 {
		return down(dir)
	}
	l, err := load(dir)
	if err != nil {
		return err
	}
	return l.runCommand(ctx, command, args)
}

// parseDir parses --dir before other arguments, and returns its absolute path and the other
// arguments.
func parseDir(dir string, args []string) (string, []string, error) {
	flags := flag.NewFlagSet("kubelab", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&dir, "dir", dir, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return "", []string{"help"}, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w\n%s", err, usage)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("find directory: %w", err)
	}
	return dir, flags.Args(), nil
}

// parseUpArgs parses the arguments of `up`. It returns the lab and the path of a built agent, which
// is empty without --agent.
func parseUpArgs(dir string, args []string) (*Lab, string, error) {
	l := &Lab{}
	flags := flag.NewFlagSet("kubelab up", flag.ContinueOnError)
	flags.StringVar(&dir, "dir", dir, "directory of the clusters")
	clusters := flags.String("clusters", "c1,c2", "names, at most eight")
	flags.IntVar(&l.Nodes, "nodes", 2, "nodes of each cluster")
	flags.BoolVar(&l.Flat, "flat", false, "each cluster has prefixes of its own; otherwise all have the same")
	pods := flags.String("pods", "", "IPv4 prefixes of pods, a /16 for each cluster, such as 10.16.0.0/16,11.16.0.0/16")
	flags.StringVar(&l.Families, "families", "ipv4", "of addresses of nodes, pods and Services: ipv4, ipv6, or dual for both")
	flags.StringVar(&l.Proxy, "proxy", "nftables", "implementation of Services: nftables or iptables (kube-proxy), network (cilium itself), or none")
	flags.StringVar(&l.CNI.Name, "cni", "bridge", "network of the pods: "+strings.Join(cni.Names(), ", ")+", or a file with a script such as e2e/kube/cni has them")
	var settings []string
	flags.Func("cni-setting", "`NAME=VALUE` for the network's script; can be repeated", func(one string) error {
		settings = append(settings, one)
		return nil
	})
	flags.StringVar(&l.CNI.Bin, "cni-bin", "", "programs built by hack/setup-cni.sh [run it; for a script file: bin next to it]")
	podCIDRs := flags.Bool("pod-cidrs", true, "Node objects have spec.podCIDRs; never with calico-like and no-podcidrs")
	flags.StringVar(&l.Bin, "bin", "", "programs that hack/setup-kube.sh built; without it that is run")
	agent := flags.String("agent", "", "the agent for the image; without it the tree's is built")
	if err := flags.Parse(args); err != nil {
		return nil, "", err
	}
	var err error
	if l.Dir, err = filepath.Abs(dir); err != nil {
		return nil, "", fmt.Errorf("find directory: %w", err)
	}
	l.Clusters = strings.Split(*clusters, ",")
	if len(l.Clusters) > 8 || l.Nodes < 1 || l.Nodes > 8 || flags.NArg() > 0 {
		return nil, "", errors.New("up to eight clusters of one to eight nodes")
	}
	if l.Pods, err = parsePodPrefixes(*pods, len(l.Clusters)); err != nil {
		return nil, "", err
	}
	for _, choice := range []struct {
		flag, have string
		of         []string
	}{
		{"proxy", l.Proxy, []string{"nftables", "iptables", networkProxy, "none"}},
		{"families", l.Families, []string{"ipv4", "ipv6", "dual"}},
	} {
		if !slices.Contains(choice.of, choice.have) {
			return nil, "", fmt.Errorf("%s %q: one of %s", choice.flag, choice.have, strings.Join(choice.of, ", "))
		}
	}
	if err := l.configureCNI(settings); err != nil {
		return nil, "", err
	}
	l.CNI.PodCIDRs = l.CNI.PodCIDRs && *podCIDRs
	return l, *agent, nil
}

// parsePodPrefixes parses the IPv4 prefixes of pods, one /16 for each cluster. It returns nil for
// an empty text.
func parsePodPrefixes(text string, clusters int) ([]netip.Prefix, error) {
	if text == "" {
		return nil, nil
	}
	var out []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(one)
		if err != nil || !p.Addr().Is4() || p.Bits() != 16 || p != p.Masked() {
			return nil, fmt.Errorf("prefix of pods %q: no IPv4 prefix of length 16", one)
		}
		out = append(out, p)
	}
	if len(out) != clusters {
		return nil, fmt.Errorf("%d prefixes of pods for %d clusters", len(out), clusters)
	}
	return out, nil
}

// configureCNI completes the options of the clusters' network.
func (l *Lab) configureCNI(settings []string) error {
	n := &l.CNI
	if strings.Contains(n.Name, "/") { // the features of a user's script are unknown
		at, err := filepath.Abs(n.Name)
		if err != nil {
			return fmt.Errorf("find network: %w", err)
		}
		n.Name, n.PodCIDRs, n.Settings = at, true, map[string]string{}
		if n.Bin == "" {
			n.Bin = filepath.Join(filepath.Dir(at), "bin")
		}
		for _, one := range settings {
			name, value, _ := strings.Cut(one, "=")
			n.Settings[name] = value
		}
		return nil
	}
	recipe, err := cni.Find(n.Name)
	if err != nil {
		return err
	}
	if !recipe.IPv6 && l.Families != "ipv4" {
		return fmt.Errorf("network %s has no families but ipv4 in the lab", n.Name)
	}
	if l.Proxy == networkProxy && !recipe.Services {
		return fmt.Errorf("network %s does not implement Services: use --proxy nftables, iptables or none", n.Name)
	}
	n.PodCIDRs, n.Routed = recipe.PodCIDRs, recipe.Routed
	if n.Settings, err = recipe.With(settings); err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	return nil
}

func runUp(ctx context.Context, dir string, args []string) error {
	l, agent, err := parseUpArgs(dir, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	if _, err := hierarchies(); err != nil {
		return err
	}
	begun := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	if l.Bin == "" {
		if l.Bin, err = setUp(ctx, "hack/setup-kube.sh"); err != nil {
			return err
		}
	}
	if recipe, err := cni.Find(l.CNI.Name); err == nil && recipe.Setup && l.CNI.Bin == "" {
		if l.CNI.Bin, err = setUp(ctx, "hack/setup-cni.sh", l.CNI.Name); err != nil {
			return err
		}
	}
	if err := l.up(ctx, agent, say); err != nil {
		return err
	}
	fmt.Println(l.kubeconfig())
	return nil
}

// setUp runs a script of hack, which installs and builds programs. It returns their directory.
func setUp(ctx context.Context, script string, args ...string) (string, error) {
	setup := exec.CommandContext(ctx, script, args...)
	setup.Stderr = os.Stderr
	out, err := setup.Output()
	if err != nil {
		return "", fmt.Errorf("run %s in the root of the repository: %w", script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// runCommand runs a command that needs running clusters.
func (l *Lab) runCommand(ctx context.Context, command string, args []string) error {
	switch {
	case command == "api-proxy" && len(args) == 0:
		return l.runAPIProxy()
	case command == "kubeconfig" && len(args) == 0:
		_, err := fmt.Println(l.kubeconfig())
		return err
	case command == "load" && len(args) <= 1:
		return l.load(ctx, strings.Join(args, ""))
	case command == "import" && len(args) > 0:
		return l.importImages(ctx, args)
	case command == "k" && len(args) > 1:
		return runAttached(ctx, append([]string{filepath.Join(l.Bin, "kubectl"), "--kubeconfig", l.kubeconfig(), "--context"}, args...))
	case command == "net" && len(args) > 1:
		return runAttached(ctx, append([]string{"nsenter", "--net=" + l.netnsPath(args[0])}, args[1:]...))
	case command == "node" && len(args) > 1:
		r, err := l.record(args[0])
		if err != nil {
			return err
		}
		return runAttached(ctx, append([]string{"nsenter", "--all", "--target", strconv.Itoa(r.Process.PID)}, args[1:]...))
	case command == "add" && len(args) == 1:
		name, err := l.addNode(ctx, args[0])
		if err == nil {
			fmt.Println(name)
		}
		return err
	case slices.Contains([]string{"stop", "start", "kill", "revive", "remove", "rename", "address", "expose"}, command) && len(args) > 0:
		m, err := l.machine(args[0])
		if err != nil {
			return err
		}
		return l.changeMachine(ctx, m, command, args[1:])
	}
	return errors.New(usage)
}

// changeMachine runs a command that changes a machine.
func (l *Lab) changeMachine(ctx context.Context, m Node, command string, args []string) error {
	switch {
	case command == "stop" && len(args) == 0:
		return l.powerOff(m.Name)
	case command == "start" && len(args) == 0:
		if _, err := l.record(m.Name); err == nil {
			return fmt.Errorf("%s runs", m.Name)
		}
		return l.startMachine(m)
	case command == "kill" && len(args) == 1:
		return l.kill(ctx, m.Name, args[0])
	case command == "revive" && len(args) == 1:
		return l.revive(m.Name, args[0])
	case command == "remove" && len(args) == 0:
		return l.removeNode(ctx, m)
	case command == "rename" && len(args) == 1:
		return l.renameNode(ctx, m, args[0])
	case command == "expose" && len(args) == 0:
		return l.setExternalAddress(ctx, m, netip.Addr{})
	case (command == "address" || command == "expose") && len(args) == 1:
		addr, err := netip.ParseAddr(args[0])
		if err != nil {
			return fmt.Errorf("address of %s: %w", m.Name, err)
		}
		if command == "expose" {
			return l.setExternalAddress(ctx, m, addr)
		}
		return l.changeAddress(ctx, m, addr)
	}
	return fmt.Errorf("kubelab %s %s: wrong number of arguments", command, m.Name)
}

// runAttached runs a command with the standard streams of this process.
func runAttached(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// load imports the image of an agent on all nodes. If agent is empty, load builds it from the tree.
// Pods use the image from their next start.
func (l *Lab) load(ctx context.Context, agent string) error {
	archive, err := l.writeAgent(agent)
	if err != nil {
		return err
	}
	return l.importImages(ctx, []string{archive})
}

// importImages imports the images of archives on the running nodes.
func (l *Lab) importImages(ctx context.Context, archives []string) error {
	for _, m := range l.Machines[len(l.Clusters):] {
		r, err := l.record(m.Name)
		if err != nil {
			return err
		}
		for _, archive := range archives {
			argv := []string{"nsenter", "--all", "--target", strconv.Itoa(r.Process.PID),
				"ctr", "-a", "/run/containerd/containerd.sock", "-n", "k8s.io", "images", "import", archive}
			if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("import %s into %s: %w: %s", archive, m.Name, err, strings.TrimSpace(string(out)))
			}
		}
	}
	return nil
}
