package lab

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/lab/whereami"
)

// TestExec: standard streams, exit code, resolver, host name and a private /run.
func TestExec(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	run := func(target, script string) (string, int) {
		cmd := exec.Command("/proc/self/exe", "lab", "enter", target, "sh", "-c", script)
		cmd.Env = append(os.Environ(), DirEnv+"="+r.layout.Dir)
		cmd.Stdin = strings.NewReader("from outside\n")
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := run("a/default/client", "cat; hostname; cat /etc/resolv.conf; exit 7")
	want := "from outside\nclient\nnameserver 169.254.73.53\nsearch default.svc.clusterset.local svc.clusterset.local\noptions ndots:5\n"
	if out != want || code != 7 {
		t.Errorf("exit %d, output:\n%s", code, out)
	}
	if out, _ = run("a/a-gw", "touch /run/mine; hostname; ls /sys/class/net | tr '\\n' ' '"); !strings.HasPrefix(out, "a-gw\neth0 lo veth") {
		t.Errorf("on a node:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(r.layout.Node("a-gw"), "run", "mine")); err != nil {
		t.Errorf("a node's /run: %v", err)
	}
	if _, err := os.Stat("/run/mine"); err == nil {
		t.Error("a node wrote to the host's /run")
	}
}

// TestDownRemovesEverything checks that down removes a running lab, and a lab whose daemon was
// killed while a program ran in a pod. up in between restarts the lab.
func TestDownRemovesEverything(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	config, err := readConfig(r.layout)
	if err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("/proc/self/exe", "lab", "nsexec", "--net", r.ns("a/default/client"), "--", "sleep", "600")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = orphan.Wait() }()
	killDaemon(t, r.layout)
	if _, err := r.client.Status(context.Background()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("status of a killed lab: %v", err)
	}
	address := "http://" + "10.77.0.10"
	r.up()
	r.want("a/default/client", address, func(_ whereami.Answer, err error) bool { return err == nil })
	r.up() // once more on a lab that runs
	inodes := netnsexec.Inodes(r.layout.namespaces())
	if len(inodes) < 8 {
		t.Fatalf("%d namespaces", len(inodes))
	}
	killDaemon(t, r.layout)
	if ran, err := Down(context.Background(), r.layout); err != nil || !ran {
		t.Fatalf("down: %t, %v", ran, err)
	}
	if left := netnsexec.Processes(inodes, markEnv+"="+config.ID); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), r.layout.Dir) {
		t.Errorf("mounts left: %v\n%s", err, mounts)
	}
	if _, err := os.Stat(filepath.Dir(r.layout.Dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory left: %v", err)
	}
	if ran, err := Down(context.Background(), r.layout); err != nil || ran {
		t.Errorf("down without a lab: %t, %v", ran, err)
	}
}

func killDaemon(t *testing.T, l Layout) {
	t.Helper()
	var daemon netnsexec.Process
	raw, err := os.ReadFile(l.daemon())
	if err == nil {
		err = json.Unmarshal(raw, &daemon)
	}
	if err == nil {
		err = netnsexec.Kill(context.Background(), []netnsexec.Process{daemon})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestUpRefuses tests that wrong input fails before anything is created.
func TestUpRefuses(t *testing.T) {
	t.Parallel()
	require(t, os.Geteuid() == 0, "root")
	dir := t.TempDir()
	broken := filepath.Join(dir, "clusterset.yaml")
	text := strings.Replace(labTopology, "10.7.0.0/16, ", "10.7.0.1/16, ", 1)
	if err := os.WriteFile(broken, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if _, err := writeFile(filepath.Join(full, "mine"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, dir, want string }{
		{"topology", filepath.Join(dir, "lab"), "clusterset.yaml:8:"},
		{"foreign directory", full, "is not empty and not a lab"},
	}
	for _, tt := range tests {
		l := Layout{Dir: tt.dir}
		err := Up(context.Background(), l, UpOptions{Topology: broken, NoHawser: true, Hawser: "/proc/self/exe", Progress: func(Event) {}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
		if ran, err := Down(context.Background(), l); err != nil || ran {
			t.Errorf("%s: something was made: %t, %v", tt.name, ran, err)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Errorf("foreign file: %v", err)
	}
}
