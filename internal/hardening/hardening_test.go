package hardening_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nobodyUID owns the processes if the test runs as root: root may read everything.
const nobodyUID = 65534

func asNobody(cmd *exec.Cmd) *exec.Cmd {
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	}
	return cmd
}

// TestProcess checks that processes of the same user cannot read the memory or the environment of
// the built programs, and that they leave no core dumps.
func TestProcess(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hwprivate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", dir, "../../cmd/hawser", "../../cmd/hawser-agent").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// It accepts requests and does not reply.
	silent, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	if err := os.Chmod(filepath.Join(dir, "socket"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		args    []string
		private bool
	}{
		{"hawser", []string{filepath.Join(dir, "hawser"), "validate", "-"}, true},
		{"hawser-agent", []string{filepath.Join(dir, "hawser-agent"), "status", "--socket", filepath.Join(dir, "socket")}, true},
		{"another program", []string{"cat"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cmd := asNobody(exec.CommandContext(ctx, tt.args[0], tt.args[1:]...))
			cmd.Dir = "/"
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = stdin.Close()
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			read := func(file string) string {
				out, _ := asNobody(exec.CommandContext(ctx, "head", "-c", "1", fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, file))).CombinedOutput()
				return string(out)
			}
			for tt.private && !strings.Contains(read("environ"), "Permission denied") {
				if ctx.Err() != nil {
					t.Fatalf("its environment is read: %q", read("environ"))
				}
				time.Sleep(10 * time.Millisecond)
			}
			if denied := strings.Contains(read("mem"), "Permission denied"); denied != tt.private {
				t.Errorf("memory: %q", read("mem"))
			}
			if tt.private && coreLimit(t, cmd.Process.Pid) != "0 0" {
				t.Errorf("core dumps of %s bytes", coreLimit(t, cmd.Process.Pid))
			}
		})
	}
}

// coreLimit returns the soft and the hard limit of a process's core dumps.
func coreLimit(t *testing.T, pid int) string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for in := bufio.NewScanner(io.LimitReader(f, 1<<16)); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "Max core file size"); ok {
			return strings.Join(strings.Fields(rest)[:2], " ")
		}
	}
	t.Fatal("no limit of core dumps")
	return ""
}
