package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
)

// needMachine returns the cgroup hierarchies. It skips the test if this machine lacks a requirement
// of a lab.
func needMachine(t *testing.T) []hierarchy {
	t.Helper()
	missing := errors.New("needs root")
	var all []hierarchy
	if os.Geteuid() == 0 {
		all, missing = hierarchies()
	}
	if missing != nil && os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal(missing)
	}
	if missing != nil {
		t.Skip(missing)
	}
	return all
}

// TestDown tests that down removes any partial lab, and that a second down succeeds.
func TestDown(t *testing.T) {
	all := needMachine(t)
	for name, spoil := range map[string]func(t *testing.T, l *Lab){
		"unchanged":            func(*testing.T, *Lab) {},
		"record without start": func(t *testing.T, l *Lab) { l.mustSaveRecord(t, record{}) },
		"record of a thread": func(t *testing.T, l *Lab) {
			l.mustSaveRecord(t, record{Process: netnsexec.Process{PID: secondaryThreadID(t), Start: 1}})
		},
		"record empty":          func(t *testing.T, l *Lab) { overwrite(t, l.path("machines", "c1n1.json")) },
		"record gone":           func(t *testing.T, l *Lab) { remove(t, l.path("machines", "c1n1.json")) },
		"lab.json empty":        func(t *testing.T, l *Lab) { overwrite(t, l.path("lab.json")) },
		"lab.json not complete": func(t *testing.T, l *Lab) { rename(t, l.path("lab.json"), l.path("lab.json.new")) },
		"half of a down": func(t *testing.T, l *Lab) {
			if err := errors.Join(l.endProcesses(), netnsexec.RemoveAll(l.path("net"))); err != nil {
				t.Fatal(err)
			}
		},
		"power loss": func(t *testing.T, l *Lab) {
			if err := errors.Join(l.endProcesses(), netnsexec.RemoveAll(l.path("net")), os.Mkdir(l.path("net"), 0o755)); err != nil {
				t.Fatal(err)
			}
			overwrite(t, l.netnsPath(internet))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Lab{Dir: filepath.Join(t.TempDir(), "lab"), Families: "ipv4", Clusters: []string{"c1"}, Nodes: 1}
			t.Cleanup(func() { _ = down(l.Dir) })
			started := l.startMinimalLab(t, all)
			spoil(t, l)
			for range 2 {
				if err := down(l.Dir); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range started {
				if p.Alive() {
					t.Errorf("process %d is left", p.PID)
				}
			}
			if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", l.Dir, err)
			}
			if left, _ := l.cgroups(); len(left) > 0 {
				t.Errorf("cgroups are left: %v", left)
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(mounts), l.Dir) {
				t.Errorf("mounts are left: %v", err)
			}
		})
	}
}

// startMinimalLab creates a lab of one node without Kubernetes' programs: directories, networks, a
// machine in cgroups, and a process in a network of the lab.
func (l *Lab) startMinimalLab(t *testing.T, all []hierarchy) []netnsexec.Process {
	t.Helper()
	l.Machines = l.plan()
	node := l.Machines[1]
	script := filepath.Join(t.TempDir(), "init.sh")
	err := os.MkdirAll(l.path("machines", node.Name), 0o755)
	if err == nil {
		err = errors.Join(l.save(), raiseInotifyLimit(l.Dir), l.createInternet(), l.connectMachine(node),
			os.WriteFile(script, []byte("sleep 1000 & wait\n"), 0o755))
	}
	r := record{}
	for _, h := range all {
		r.Cgroups = append(r.Cgroups, filepath.Join(h.dir, l.objectPrefix()+node.Name))
		err = errors.Join(err, h.createCgroup(l.objectPrefix()+node.Name))
	}
	if err == nil {
		err = netnsexec.Do(l.netnsPath(node.Name), func() error { return l.startProcess(node, script, nil, all, r) })
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err = l.record(node.Name)
	if err != nil {
		t.Fatal(err)
	}
	watcher := exec.Command("nsenter", "--net="+l.netnsPath(internet), "sleep", "1000")
	if err := watcher.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- watcher.Wait() }()
	t.Cleanup(func() { _, _ = watcher.Process.Kill(), <-ended })
	found, err := netnsexec.Find(watcher.Process.Pid)
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if len(netnsexec.Processes(netnsexec.Inodes(l.path("net")), "")) > 1 {
			return []netnsexec.Process{r.Process, found}
		}
	}
	t.Fatalf("nothing is in the network of the lab: %v", err)
	return nil
}

// TestSameName tests two labs in directories with the same name.
func TestSameName(t *testing.T) {
	one, other := &Lab{Dir: "/var/tmp/one/lab"}, &Lab{Dir: "/var/tmp/other/lab"}
	if one.objectPrefix() == other.objectPrefix() {
		t.Errorf("both have the cgroups %s*", one.objectPrefix())
	}
	if again := (&Lab{Dir: one.Dir}).objectPrefix(); again != one.objectPrefix() {
		t.Errorf("%s is now %s", one.objectPrefix(), again)
	}
}

// TestForeign tests that down does not change a directory without a lab.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	overwrite(t, file)
	if err := down(dir); err == nil {
		t.Error("it is taken down")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestDir tests --dir before and after the command.
func TestDir(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv(DirEnv, filepath.Join(t.TempDir(), "another"))
	for _, args := range []string{"--dir %s kubeconfig", "kubeconfig --dir %s", "kubeconfig --dir=%s", "k --dir %s c1 get nodes"} {
		err := run(context.Background(), strings.Fields(fmt.Sprintf(args, absent)))
		if err == nil || !strings.Contains(err.Error(), "no clusters in "+absent+":") {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, args := range []string{"--dir %s down", "down --dir %s"} {
		needMachine(t)
		dir := t.TempDir()
		if err := run(context.Background(), strings.Fields(fmt.Sprintf(args, dir))); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the directory is left: %v", args, err)
		}
	}
	for _, args := range []string{"--dir x", ""} {
		l, _, err := parseUpArgs(absent, strings.Fields(args))
		if err != nil || (args == "") != (l.Dir == absent) || !filepath.IsAbs(l.Dir) {
			t.Errorf("up %s: %v, %v", args, l, err)
		}
	}
}

// TestNetwork tests the flags of up about the pod network.
func TestNetwork(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "bridge map[] podCIDRs true routed true"},
		{"--pod-cidrs=false", "bridge map[] podCIDRs false routed true"},
		{"--cni no-podcidrs --families dual", "no-podcidrs map[] podCIDRs false routed true"},
		{"--cni flannel --cni-setting BACKEND=host-gw", "flannel map[BACKEND:host-gw NFTABLES:false] podCIDRs true routed false"},
		{"--cni cilium --cni-setting IPAM=kubernetes --cni-setting MORE=--a=b", "cilium map[DEVICES: IPAM:kubernetes MASQUERADE:iptables MORE:--a=b ROUTING:tunnel] podCIDRs true routed false"},
		{"--cni calico-like", "calico-like map[RP_FILTER:0] podCIDRs false routed true"},
		{"--cni /some/file.sh --cni-setting A=b", "/some/file.sh map[A:b] podCIDRs true routed false"},
		{"--cni flannel --cni-setting BACKENDS=x", `network flannel: no setting "BACKENDS=x": there are [BACKEND NFTABLES]`},
		{"--cni cilium --families dual", "network cilium has no families but ipv4 in the lab"},
		{"--cni weave", `no network "weave": one of bridge, calico-like, cilium, flannel, kube-ovn, no-podcidrs, or a file with a slash in its path`},
	} {
		l, _, err := parseUpArgs("/somewhere", strings.Fields(tt.args))
		have := fmt.Sprint(err)
		if err == nil {
			have = fmt.Sprintf("%s %v podCIDRs %t routed %t", l.CNI.Name, l.CNI.Settings, l.CNI.PodCIDRs, l.CNI.Routed)
		}
		if have != tt.want {
			t.Errorf("%s\nhave %s\nwant %s", tt.args, have, tt.want)
		}
	}
}

func (l *Lab) mustSaveRecord(t *testing.T, r record) {
	t.Helper()
	if err := l.saveRecord("c1n1", r); err != nil {
		t.Fatal(err)
	}
}

// secondaryThreadID returns the number of a thread that is not the first of its process.
func secondaryThreadID(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if number, err := strconv.Atoi(task.Name()); err == nil && number != os.Getpid() {
			return number
		}
	}
	t.Fatal("one thread alone")
	return 0
}

// overwrite truncates a file.
func overwrite(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
