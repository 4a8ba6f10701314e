package netnsexec

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

func TestExecArgs(t *testing.T) {
	t.Parallel()
	tests := []Exec{
		{Net: "/n", Argv: []string{"ls"}},
		{Net: "/n", Resolv: "/r", Hosts: "/h", Run: "/run2", KeepDir: "/k", Hostname: "host", Argv: []string{"sh", "-c", "exit 1", "--", "--net"}},
	}
	for _, want := range tests {
		got, err := ParseExec(want.Args())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, args := range [][]string{nil, {"--net", "/n"}, {"--", "ls"}, {"--bogus", "--", "ls"}} {
		if _, err := ParseExec(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

// TestNamespace: a namespace has a loopback of its own, lives as long as its file,
// and working in it leaves the caller where it was.
func TestNamespace(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	dir := filepath.Join(t.TempDir(), "ns")
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := RemoveAll(dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %v", err)
		}
	})
	path := filepath.Join(dir, "one")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	if err := Create(path); err == nil {
		t.Error("a namespace was made over another")
	}
	var inside, outside []net.Interface
	var listener net.Listener
	err := Do(path, func() (err error) {
		if inside, err = net.Interfaces(); err != nil {
			return err
		}
		listener, err = net.Listen("tcp", "127.0.0.1:7777")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if outside, err = net.Interfaces(); err != nil {
		t.Fatal(err)
	}
	if len(inside) != 1 || inside[0].Flags&net.FlagUp == 0 || len(outside) < len(inside) {
		t.Errorf("inside %v, outside %v", inside, outside)
	}
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:7777", time.Second); err == nil {
		_ = conn.Close()
		t.Error("a socket inside is reached from outside")
	}
	inode, err := Inode(path)
	if err != nil || !Inodes(dir)[inode] || len(Inodes(dir)) != 1 {
		t.Errorf("inode %d of %v, %v", inode, Inodes(dir), err)
	}
}

// TestProcesses finds a process by its mark, not one with a longer value, and
// ends it for certain.
func TestProcesses(t *testing.T) {
	t.Parallel()
	start := func(mark string) Process {
		cmd := exec.Command("sleep", "600")
		cmd.Env = []string{mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := Find(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return p
	}
	mark := "HAWSER_TEST=" + filepath.Base(t.TempDir()) + t.Name()
	want, other := start(mark), start(mark+"1")
	// A child has the mark only once it has become sleep.
	var found []Process
	for deadline := time.Now().Add(5 * time.Second); len(found) == 0 && time.Now().Before(deadline); {
		found = Processes(nil, mark)
	}
	if !slices.Equal(found, []Process{want}) {
		t.Fatalf("found %v, want %v", found, want)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	reused := Process{PID: other.PID, Start: other.Start + 1}
	if err := Kill(ctx, append(found, reused)); err != nil {
		t.Fatal(err)
	}
	if want.Alive() || !other.Alive() {
		t.Errorf("ended: %t, other alive: %t", !want.Alive(), other.Alive())
	}
}

// TestSignalThread: the number of a process that is gone may be a thread's of another.
func TestSignalThread(t *testing.T) {
	t.Parallel()
	number := make(chan int)
	done := make(chan bool)
	defer close(done)
	for { // any goroutine may run on the first thread of the process
		go func() {
			runtime.LockOSThread()
			number <- unix.Gettid()
			<-done
		}()
		if tid := <-number; tid != os.Getpid() {
			if err := (Process{PID: tid, Start: 1}).Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
			return
		}
	}
}

// TestHostName: names that are longer than Linux allows are cut as the kubelet cuts them.
func TestHostName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"g1-w1":                               "g1-w1",
		strings.Repeat("a", 63) + "-w1":       strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "-w1":       strings.Repeat("a", 62),
		strings.Repeat("a", 61) + ".-" + "b1": strings.Repeat("a", 61),
	} {
		if got := hostName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
