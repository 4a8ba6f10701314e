package drivertest

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"
)

// namespace is a network namespace with its own /run, which contains the sockets of tunnel
// processes. A sleeping process keeps both alive.
type namespace struct {
	env    *env
	ns     *namespace // the namespace itself, for types that embed it
	name   string
	outer  string // its address on the bridge
	holder *exec.Cmd
}

// newNamespace creates a namespace. If outer is not empty, it connects the namespace to the bridge.
func (r *env) newNamespace(name, outer string) *namespace {
	t := r.t
	t.Helper()
	s := &namespace{env: r, name: name, outer: outer}
	s.ns = s
	must(t, "ip", "netns", "add", name)
	t.Cleanup(func() { s.end(t) })
	s.holder = exec.Command("ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c",
		"mount -t tmpfs none /run && echo && exec sleep infinity")
	s.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("hold namespace %s: %v", name, err)
	}
	s.run("ip", "link", "set", "lo", "up")
	if outer == "" {
		return s
	}
	port := "p" + name[len(name)-1:]
	must(t, "ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", r.wan.name)
	s.run("ip", "link", "set", "eth0", "up")
	r.wan.run("ip", "link", "set", port, "master", "br0", "up")
	if netip.MustParseAddr(outer).Is4() {
		s.run("ip", "addr", "add", outer+"/24", "dev", "eth0")
	} else {
		s.run("ip", "addr", "add", outer+"/64", "dev", "eth0", "nodad")
	}
	return s
}

// end kills the processes in the namespace and removes it.
func (s *namespace) end(t *testing.T) {
	if s.holder != nil && s.holder.Process != nil {
		_ = s.holder.Process.Kill()
		_ = s.holder.Wait()
	}
	pids, err := exec.Command("ip", "netns", "pids", s.name).Output()
	if err != nil {
		t.Errorf("list processes in %s: %v", s.name, err)
	}
	for _, pid := range bytes.Fields(pids) {
		if n, err := strconv.Atoi(string(pid)); err == nil && n != os.Getpid() {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	must(t, "ip", "netns", "del", s.name)
}

// command returns a command that runs inside the namespace.
func (s *namespace) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{
		"--mount", "--net", "--target", strconv.Itoa(s.holder.Process.Pid), "--", name}, args...)...)
}

// run runs a command inside the namespace and returns its output.
func (s *namespace) run(name string, args ...string) string {
	s.env.t.Helper()
	out, err := s.command(name, args...).CombinedOutput()
	if err != nil {
		s.env.t.Fatalf("%s: %s %v: %v\n%s", s.name, name, args, err, out)
	}
	return string(out)
}

func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// resend replays the UDP and ESP packets between two addresses, with this namespace's own source
// address, and returns their number.
func (s *namespace) resend(packets []packet, from, to string) (sent int) {
	s.env.t.Helper()
	s.inside(func() error {
		for _, p := range packets {
			if p.from != from || p.to != to || p.proto != syscall.IPPROTO_UDP && p.proto != syscall.IPPROTO_ESP {
				continue
			}
			if err := send(p, to); err != nil {
				return err
			}
			sent++
		}
		return nil
	})
	return sent
}

// inside runs f on a thread in the namespace.
func (s *namespace) inside(f func() error) {
	s.env.t.Helper()
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		s.env.t.Fatal(err)
	}
	defer home.Close()
	away, err := netns.GetFromName(s.name)
	if err != nil {
		s.env.t.Fatal(err)
	}
	defer away.Close()
	if err = netns.Set(away); err == nil {
		err = f()
	}
	if back := netns.Set(home); back != nil {
		s.env.t.Fatalf("leave %s: %v", s.name, back) // the thread stays locked, so it ends with the test
	}
	runtime.UnlockOSThread()
	if err != nil {
		s.env.t.Fatal(err)
	}
}

func send(p packet, to string) error {
	body := p.payload()
	network, address := "ip:50", to
	if p.proto == syscall.IPPROTO_UDP {
		network, address = "udp", net.JoinHostPort(to, strconv.Itoa(int(binary.BigEndian.Uint16(body[2:]))))
		body = body[8:]
	}
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Write(body)
	return err
}
