package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/lab/whereami"
)

// TestPacketsArrive: pod addresses, ClusterIPs in both families, from pods and
// nodes, on the same node and across, with the source that kube-proxy leaves.
func TestPacketsArrive(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	client, gw, web := r.pod("a/default/client"), r.pod("a/default/gw"), r.pod("a/default/web-1")
	r.want("a/default/client", "http://"+web.IP+":8080", clientIs(client.IP))
	r.want("a/default/client", "http://"+gw.IP+":8080", clientIs(client.IP))
	r.want("a/default/client", "http://["+gw.IPs[1]+"]:8080", clientIs(client.IPs[1]))
	r.want("a/default/gw", "http://"+web.IP+":8080/any/path", clientIs(gw.IP))
	r.want("a/a-gw", "http://"+gw.IP+":8080", clientIs("10.7.0.1"))
	r.want("b/default/client", "http://172.18.0.2:8080", clientIs("172.18.0.3")) // masqueraded to its node
	for _, url := range []string{"http://10.77.0.10", "http://[fd00:77::10]"} {
		pods := map[string]bool{}
		for range 60 {
			answer, err := r.get("a/default/client", url)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Client != client.IP && answer.Client != client.IPs[1] {
				t.Fatalf("client seen as %s", answer.Client)
			}
			pods[answer.Pod] = true
		}
		if len(pods) != 3 {
			t.Errorf("60 requests to %s reached %v, want all three pods", url, pods)
		}
	}
	r.want("a/a-w1", "http://10.77.0.10", func(a whereami.Answer, err error) bool { return err == nil && a.Cluster == "a" })
	for range 10 { // sometimes it reaches itself, which needs the hairpin
		r.want("a/default/web-1", "http://10.77.0.10", func(_ whereami.Answer, err error) bool { return err == nil })
	}
	// The second cluster has the same addresses and no route to this one.
	r.want("b/default/client", "http://10.77.0.10", func(_ whereami.Answer, err error) bool { return err != nil })
	r.udp("a/default/client", web.IP+":53", web.Name)
}

func (r *testLab) udp(from, to, wantPod string) {
	r.t.Helper()
	err := netnsexec.Do(r.ns(from), func() error {
		conn, err := net.DialTimeout("udp", to, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := errors.Join(conn.SetDeadline(time.Now().Add(3*time.Second)), lastOf(conn.Write([]byte("who")))); err != nil {
			return err
		}
		buffer := make([]byte, 1500)
		n, err := conn.Read(buffer)
		if err == nil && !strings.Contains(string(buffer[:n]), wantPod) {
			err = fmt.Errorf("answer %s", buffer[:n])
		}
		return err
	})
	if err != nil {
		r.t.Errorf("UDP %s -> %s: %v", from, to, err)
	}
}

func lastOf(_ int, err error) error { return err }

// TestChanges: readiness, scaling and deletion reach the services at once, and
// what cannot be done changes nothing.
func TestChanges(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	ctx := context.Background()
	zero, two := int32(0), int32(2)
	do := func(c Change) {
		t.Helper()
		if err := r.client.Change(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	onGateway := func(a whereami.Answer, err error) bool { return err == nil && a.Pod == "gw" }
	do(Change{Cluster: "a", Object: "default/deployment/web", Replicas: &zero})
	r.want("a/default/client", "http://10.77.0.10", onGateway)
	do(Change{Cluster: "a", Pod: "default/gw", Ready: false})
	r.want("a/default/client", "http://10.77.0.10", func(_ whereami.Answer, err error) bool {
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	do(Change{Cluster: "a", Pod: "default/gw", Ready: true})
	r.want("a/default/client", "http://10.77.0.10", onGateway)
	err := r.client.Change(ctx, Change{Cluster: "a", File: "x.yaml",
		Apply: "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {nodeName: zz, containers: []}}"})
	if err == nil || !strings.Contains(err.Error(), `node "zz" not found`) {
		t.Errorf("a pod on an unknown node: %v", err)
	}
	do(Change{Cluster: "a", Object: "default/deployment/web", Replicas: &two})
	do(Change{Cluster: "a", Object: "default/Pod/gw"})
	err = r.client.Change(ctx, Change{Cluster: "c", Object: "default/Pod/gw"})
	if err == nil || !strings.Contains(err.Error(), "(clusters: a, b)") {
		t.Errorf("an unknown cluster: %v", err)
	}
	for range 5 {
		r.want("a/default/client", "http://10.77.0.10", func(a whereami.Answer, err error) bool {
			return err == nil && strings.HasPrefix(a.Pod, "web-")
		})
	}
}

// TestPodRunsProgram: a pod with a command has that in place of the lab's server,
// and it ends with the pod.
func TestPodRunsProgram(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	ctx := context.Background()
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: own, annotations: {hawser.dev/lab-command: "/proc/self/exe lab hello you there"}},
 spec: {containers: [{name: w, image: x, ports: [{containerPort: 8080}, {containerPort: 8081}]}]}}`
	if err := r.client.Change(ctx, Change{Cluster: "a", File: "own.yaml", Apply: pod}); err != nil {
		t.Fatal(err)
	}
	own := r.pod("a/default/own")
	r.eventually("a/default/client", "http://"+own.IP+":8081")
	r.want("a/default/client", "http://"+own.IP+":8081", func(a whereami.Answer, err error) bool {
		return err == nil && a.Pod == "own" && a.Namespace == "you there"
	})
	r.want("a/default/client", "http://"+own.IP+":8080", func(_ whereami.Answer, err error) bool {
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	inode, err := netnsexec.Inode(r.ns("a/default/own"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(netnsexec.Processes(map[uint64]bool{inode: true}, "")); n != 1 {
		t.Errorf("%d processes in the pod, want its program", n)
	}
	if err := r.client.Change(ctx, Change{Cluster: "a", Object: "default/Pod/own"}); err != nil {
		t.Fatal(err)
	}
	if left := netnsexec.Processes(map[uint64]bool{inode: true}, ""); len(left) > 0 {
		t.Errorf("processes of a pod that is gone: %v", left)
	}
}

// TestFaults cuts, delays and drops packets on a link, and powers off a node with its pods. Each
// fault can be healed.
func TestFaults(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	ctx := context.Background()
	do := func(f Fault) {
		t.Helper()
		if err := r.client.Fault(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	const url = "http://203.0.113.2:8080" // from one gateway to the other, over the wide area
	reached := func(_ whereami.Answer, err error) bool { return err == nil }
	lost := func(_ whereami.Answer, err error) bool { return err != nil }
	r.want("a/a-gw", url, clientIs("203.0.113.1"))
	do(Fault{Kind: "delay", Target: "a/a-gw", Value: "50ms"})
	startedAt := time.Now()
	r.want("a/a-gw", url, reached)
	if took := time.Since(startedAt); took < 200*time.Millisecond { // two round trips of 100 ms
		t.Errorf("a request over a link with 50ms each way took %s", took)
	}
	do(Fault{Kind: "loss", Target: "a/a-gw", Value: "100%"})
	r.want("a/a-gw", url, lost)
	do(Fault{Kind: "delay", Target: "a/a-gw", Value: "0"})
	r.want("a/a-gw", url, lost)
	do(Fault{Kind: "loss", Target: "a/a-gw", Value: "0"})
	r.eventually("a/a-gw", url)
	do(Fault{Kind: "cut", Target: "a/a-gw"})
	r.want("a/a-gw", url, lost)
	do(Fault{Kind: "heal", Target: "a/a-gw"})
	r.eventually("a/a-gw", url)

	do(Fault{Kind: "power-off", Target: "a/a-w1"})
	if p := r.pod("a/default/web-1"); p.Ready || p.Running {
		t.Errorf("a pod of a node without power: %+v", p)
	}
	r.want("a/default/gw", "http://10.77.0.10", func(a whereami.Answer, err error) bool { return err == nil && a.Pod == "gw" })
	do(Fault{Kind: "power-on", Target: "a/a-w1"})
	r.want("a/default/client", "http://"+r.pod("a/default/web-1").IP+":8080", reached)
}

// TestOneWay tests a link that drops the packets of one direction only.
func TestOneWay(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	listeners := map[string]net.PacketConn{}
	for node, address := range map[string]string{"a/a-gw": "203.0.113.1:9000", "b/b-gw": "203.0.113.2:9000"} {
		err := netnsexec.Do(r.ns(node), func() (err error) { listeners[node], err = net.ListenPacket("udp", address); return err })
		if err != nil {
			t.Fatal(err)
		}
		defer listeners[node].Close()
	}
	there, back := listeners["a/a-gw"], listeners["b/b-gw"]
	arrives := func(from, to net.PacketConn, size int) bool {
		t.Helper()
		_ = to.SetReadDeadline(time.Now()) // discard earlier packets
		buffer := make([]byte, 2000)
		for err := error(nil); err == nil; {
			_, _, err = to.ReadFrom(buffer)
		}
		_ = to.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := from.WriteTo(make([]byte, size), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		n, _, err := to.ReadFrom(buffer)
		return err == nil && n == size
	}
	// Both sides know each other's address before anything is lost.
	if !arrives(there, back, 10) || !arrives(back, there, 10) {
		t.Fatal("nothing arrives on a whole link")
	}
	type want struct{ out, in, outLong, inLong bool }
	tests := []struct {
		fault Fault
		want  want
	}{
		{Fault{Kind: "cut", Direction: DirectionIn}, want{out: true, outLong: true}},
		{Fault{Kind: "heal"}, want{true, true, true, true}},
		{Fault{Kind: "cut", Direction: DirectionOut}, want{in: true, inLong: true}},
		{Fault{Kind: "heal", Side: SideWAN}, want{true, true, true, true}},
		{Fault{Kind: "loss", Direction: DirectionOut, Value: "100%"}, want{in: true, inLong: true}},
		{Fault{Kind: "loss", Direction: DirectionOut, Value: "0"}, want{true, true, true, true}},
		{Fault{Kind: "mtu", Value: "1300"}, want{out: true, in: true}},
		{Fault{Kind: "delay", Value: "1ms"}, want{out: true, in: true}},
		{Fault{Kind: "mtu", Value: "0"}, want{true, true, true, true}},
	}
	for _, tt := range tests {
		tt.fault.Target = "a/a-gw"
		if err := r.client.Fault(context.Background(), tt.fault); err != nil {
			t.Fatal(err)
		}
		got := want{arrives(there, back, 1272), arrives(back, there, 1272), arrives(there, back, 1273), arrives(back, there, 1273)}
		if got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.fault, got, tt.want)
		}
	}
}

// TestLengthOfStreams tests that a link with an MTU fault checks each packet of a large segment: a
// stream of full packets stalls.
func TestLengthOfStreams(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	if err := r.client.Fault(context.Background(), Fault{Kind: "mtu", Target: "b/b-gw", Value: "1400"}); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	var conn net.Conn
	err := errors.Join(
		netnsexec.Do(r.ns("b/b-gw"), func() (err error) { listener, err = net.Listen("tcp", "203.0.113.2:9000"); return err }),
		netnsexec.Do(r.ns("a/a-gw"), func() (err error) { conn, err = net.Dial("tcp", "203.0.113.2:9000"); return err }),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	defer conn.Close()
	in, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // more than the kernel holds stays here
	if _, err := conn.Write(make([]byte, 1<<20)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	_ = in.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := io.Copy(io.Discard, in); n != 0 || err == nil {
		t.Errorf("%d bytes arrived in packets that are too long, %v", n, err)
	}
}

// TestPowerCutIsSilent: nothing that dies with a node says good-bye.
func TestPowerCutIsSilent(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	var conn net.Conn
	err := netnsexec.Do(r.ns("a/a-gw"), func() (err error) {
		conn, err = net.Dial("tcp", "203.0.113.2:8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	marker := filepath.Join(r.layout.Node("b-gw"), "run", "marker")
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Fault(context.Background(), Fault{Kind: "reboot", Target: "b/b-gw"}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to a node that lost its power: %v, want silence", err)
	}
	r.want("a/a-gw", "http://203.0.113.2:8080", clientIs("203.0.113.1"))
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/run after a reboot: %v", err)
	}
}

// TestFaultErrors checks the errors of faults whose target is unknown or unsuitable.
func TestFaultErrors(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	ctx := context.Background()
	if err := r.client.Fault(ctx, Fault{Kind: "power-off", Target: "a/a-w1"}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		fault Fault
		want  string
	}{
		{Fault{Kind: "cut", Target: "a/x"}, `node "a/x" not found (nodes: a/a-gw, a/a-w1, b/b-gw, b/b-w1)`},
		{Fault{Kind: "cut", Target: "b/b-w1", Side: "wan"}, "node b/b-w1 is no gateway: its only link is lan"},
		{Fault{Kind: "restart-agent", Target: "a/a-w1"}, "node a/a-w1 is off: hawser lab fault power-on a/a-w1"},
		{Fault{Kind: "kill-tunnel", Target: "a/a-w1"}, "node a/a-w1 is off: hawser lab fault power-on a/a-w1"},
		{Fault{Kind: "lose-tunnels", Target: "a/a-w1"}, "node a/a-w1 is off: hawser lab fault power-on a/a-w1"},
		{Fault{Kind: "kill-tunnel", Target: "b/b-w1"}, "node b/b-w1 has no tunnel process: it is no gateway, or its kernel runs the tunnels"},
		{Fault{Kind: "freeze-agent", Target: "b/b-w1"}, "no agent runs on node b/b-w1: hawser lab fault start-agent b/b-w1"},
		{Fault{Kind: "kill-gateway", Target: "b/b-gw"}, "no agent runs on node b/b-gw: hawser lab fault start-agent b/b-gw"},
		{Fault{Kind: "upgrade-agent", Target: "b/b-gw", Value: "/nowhere"}, "upgrade-agent: stat /nowhere: no such file or directory"},
		{Fault{Kind: "upgrade-agent", Target: "b/b-gw", Value: "/etc"}, "upgrade-agent: /etc is not the absolute path of a program"},
		{Fault{Kind: "stop-sync", Target: "c"}, `cluster "c" not found (clusters: a, b)`},
	}
	for _, tt := range tests {
		if err := r.client.Fault(ctx, tt.fault); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %s", tt.fault, err, tt.want)
		}
	}
}

// TestDelayedLinkDeliversLargeSegments tests that a delayed link delivers a stream of large
// segments unchanged.
func TestDelayedLinkDeliversLargeSegments(t *testing.T) {
	t.Parallel()
	r := newTestLab(t)
	if err := r.client.Fault(context.Background(), Fault{Kind: "delay", Target: "b/b-gw", Value: "1ms"}); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	var conn net.Conn
	err := errors.Join(
		netnsexec.Do(r.ns("b/b-gw"), func() (err error) { listener, err = net.Listen("tcp", "203.0.113.2:9000"); return err }),
		netnsexec.Do(r.ns("a/a-gw"), func() (err error) { conn, err = net.Dial("tcp", "203.0.113.2:9000"); return err }),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const size = 8 << 20
	got := make(chan int64, 1)
	go func() {
		in, err := listener.Accept()
		if err != nil {
			got <- -1
			return
		}
		n, _ := io.Copy(io.Discard, in)
		got <- n
	}()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if n := <-got; n != size {
		t.Errorf("%d of %d bytes arrived", n, size)
	}
}
