package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

//go:embed control.sh node.sh images.sh coredns.yaml
var files embed.FS

// hierarchy is one cgroup hierarchy (cgroups(7), version 1) with the cgroup of this process.
type hierarchy struct {
	name string // controllers, or name=systemd
	dir  string // cgroup of this process
}

// hierarchies returns the version 1 hierarchies of this process; none with only version 2.
func hierarchies() ([]hierarchy, error) {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read cgroups: %w", err)
	}
	var out []hierarchy
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] == "" {
			continue // version 2
		}
		mounted := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(parts[1], "name="))
		if _, err := os.Stat(mounted); err == nil {
			out = append(out, hierarchy{name: parts[1], dir: filepath.Join(mounted, parts[2])})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no cgroup hierarchies of version 1 below /sys/fs/cgroup")
	}
	return out, nil
}

// unifiedCgroups returns the version 2 cgroups with a name, which may be a pattern. A machine whose
// network implements Services creates one: BPF programs for sockets belong to a cgroup, and must
// apply only to the machine's processes.
func unifiedCgroups(name string) []string {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		if own, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return []string{filepath.Join("/sys/fs/cgroup/unified", own, name)}
		}
	}
	return nil
}

// createCgroup creates a cgroup for a machine, below the cgroup of this process.
func (h hierarchy) createCgroup(name string) error {
	dir := filepath.Join(h.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if h.name != "cpuset" {
		return nil
	}
	// A cpuset accepts no process until it has processors and memory.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		raw, err := os.ReadFile(filepath.Join(h.dir, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), raw, 0o644)
		}
		if err != nil {
			return fmt.Errorf("fill cgroup: %w", err)
		}
	}
	return nil
}

// record is the saved state of a running machine.
type record struct {
	Process netnsexec.Process
	Cgroups []string
}

// startInit starts a machine: its script is the first process in new namespaces, the machine's
// network namespace and its own cgroups.
func (l *Lab) startInit(n Node, script string, env map[string]string) error {
	dir := l.path("machines", n.Name)
	text, err := files.ReadFile(script)
	if err != nil {
		return fmt.Errorf("read %s: %w", script, err)
	}
	file := filepath.Join(dir, "init.sh")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	r := record{}
	var names []string
	for _, h := range all {
		r.Cgroups, names = append(r.Cgroups, filepath.Join(h.dir, l.objectPrefix()+n.Name)), append(names, h.name)
	}
	r.Cgroups = append(r.Cgroups, unifiedCgroups(l.objectPrefix()+n.Name)...)
	if err := l.saveRecord(n.Name, r); err != nil { // from here on halt can remove the machine
		return err
	}
	for _, h := range all {
		if err := h.createCgroup(l.objectPrefix() + n.Name); err != nil {
			return err
		}
	}
	env["MACHINE"], env["DIR"], env["BIN"], env["CGROUPS"], env["CGROUP"] = n.Name, dir, l.Bin, strings.Join(names, " "), l.objectPrefix()+n.Name
	return netnsexec.Do(l.netnsPath(n.Name), func() error { return l.startProcess(n, file, env, all, r) })
}

// objectPrefix returns the prefix of the names of objects outside the lab's directory. It depends
// on the whole path, as directories of different labs may have the same name.
func (l *Lab) objectPrefix() string {
	sum := sha256.Sum256([]byte(l.Dir))
	return "hk-" + hex.EncodeToString(sum[:4]) + "-"
}

// environmentMark returns the environment variable of every program of the lab. down finds programs
// without a record by it.
func (l *Lab) environmentMark() string { return "KUBELAB=" + l.Dir }

// startProcess starts the first process of a machine. This thread enters the machine's cgroups
// before, so the process starts in them, and leaves them afterwards.
func (l *Lab) startProcess(n Node, file string, env map[string]string, all []hierarchy, r record) error {
	log, err := os.OpenFile(filepath.Join(filepath.Dir(file), "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", n.Name, err)
	}
	defer log.Close()
	cmd := exec.Command("/bin/bash", file)
	cmd.Env = []string{"PATH=" + l.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", l.environmentMark()}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP}
	threadID := []byte(strconv.Itoa(unix.Gettid()))
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.dir, l.objectPrefix()+n.Name, "tasks"), threadID, 0o644); err != nil {
			return fmt.Errorf("enter cgroup of %s: %w", n.Name, err)
		}
	}
	err = cmd.Start()
	for _, h := range all {
		_ = os.WriteFile(filepath.Join(h.dir, "tasks"), threadID, 0o644)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	if r.Process, err = netnsexec.Find(cmd.Process.Pid); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", n.Name, err), cmd.Process.Kill())
	}
	return errors.Join(l.saveRecord(n.Name, r), cmd.Process.Release())
}

// saveRecord saves the record of a running machine.
func (l *Lab) saveRecord(name string, r record) error {
	raw, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(l.path("machines", name+".json"), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", name, err)
	}
	return nil
}

func (l *Lab) record(name string) (record, error) {
	raw, err := os.ReadFile(l.path("machines", name+".json"))
	if err != nil {
		return record{}, fmt.Errorf("%s does not run: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return record{}, fmt.Errorf("read record of %s: %w", name, err)
	}
	return r, nil
}

// powerOff ends a machine and everything in it at once, like a power cut, if it runs.
func (l *Lab) powerOff(name string) error {
	r, err := l.record(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = r.Process.Signal(unix.SIGKILL); err == nil {
		err = removeCgroups(r.Cgroups)
	}
	if err == nil {
		err = os.Remove(l.path("machines", name+".json"))
	}
	if err != nil {
		return fmt.Errorf("halt %s: %w", name, err)
	}
	return errors.Join(l.deleteVeth(name), netnsexec.Remove(l.netnsPath(name)))
}

// removeCgroups removes cgroups whose processes are ending.
func removeCgroups(dirs []string) error {
	deadline := time.Now().Add(60 * time.Second)
	var errs []error
	for _, dir := range dirs {
		err := removeCgroup(dir)
		for err != nil && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
			err = removeCgroup(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup and its child cgroups. It fails with EBUSY while processes run in
// them.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}
