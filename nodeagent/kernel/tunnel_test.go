package kernel

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
)

// pidOf returns the ID of the process of a userspace device; 0 if absent.
func pidOf(t testing.TB, name string) int {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(e)
		if err == nil && bytes.HasSuffix(raw, []byte("\x00wireguard\x00"+name+"\x00")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(e)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

func TestTunnelProcess(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	link := tunnelLink()
	socket := "/var/run/wireguard/" + link.Name + ".sock"
	w.createDevices(t, link)
	if mustLink(t, w, link.Name).Type() == desired.DeviceWireguard {
		t.Skip("needs a kernel without WireGuard")
	}
	ended := func(pid int) func() bool {
		return func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }
	}

	pid := pidOf(t, link.Name)
	if session, err := syscall.Getpgid(pid); err != nil || session != pid {
		t.Errorf("process group %d of process %d (%v), want its own", session, pid, err)
	}
	checkPriority(t, pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the killed process", ended(pid))
	w.createDevices(t, link)
	again := pidOf(t, link.Name)
	if again == 0 || again == pid {
		t.Errorf("process %d after process %d was killed", again, pid)
	}

	w.ip(t, "link del "+link.Name)
	await(t, "the end of a process whose link is gone", ended(again))
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("socket of a process that ended: %v", err)
	}
	w.createDevices(t, link)
	third := pidOf(t, link.Name)

	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of a process without a socket", ended(third))
	w.createDevices(t, link)
	down := pidOf(t, link.Name)
	w.foreign("link set "+link.Name+" down", "link del "+link.Name)(t)
	w.createDevices(t, link) // while the old process is still exiting
	await(t, "the end of a process whose link was down and is gone", ended(down))
	if err := syscall.Kill(pidOf(t, link.Name), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "the link to go with its process", func() bool { return isGone(linkError(w, link.Name)) })
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("socket after SIGTERM: %v", err)
	}
}

// checkPriority checks that the threads and the session of a process have a raised priority.
func checkPriority(t *testing.T, pid int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of process %d: %v %v", pid, threads, err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			t.Fatal(err)
		}
		value, err := syscall.Getpriority(syscall.PRIO_PROCESS, id)
		if nice := 20 - value; err == nil && nice != -10 { // the system call returns 20 - nice
			t.Errorf("thread %d has nice %d, want -10", id, nice)
		}
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/autogroup")
	if err == nil && len(raw) > 0 && !bytes.Contains(raw, []byte("nice -10")) {
		t.Errorf("session of the process: %s, want nice -10", raw)
	}
}
