package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/e2e/traffic"
	"hawser.dev/hawser/lab/netnsexec"
)

// pod returns a network namespace for one test.
func pod(t *testing.T) traffic.Socket {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	dir, err := os.MkdirTemp("", "hwflow-")
	if err != nil {
		t.Fatal(err)
	}
	if err := netnsexec.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netnsexec.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "pod")
	if err := netnsexec.Create(path); err != nil {
		t.Fatal(err)
	}
	return traffic.Socket{Net: path}
}

func loopback(at traffic.Socket, up bool) error {
	return netnsexec.Do(at.Net, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(lo)
		}
		return netlink.LinkSetDown(lo)
	})
}

func await(t *testing.T, subject string, probe func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := probe()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", subject, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestStall interrupts the network for a moment and checks the result of each flow.
func TestStall(t *testing.T) {
	t.Parallel()
	at, to := pod(t), netip.MustParseAddrPort("127.0.0.1:7")
	server, err := traffic.Serve(at, "server", nil, int(to.Port()))
	if err != nil {
		t.Fatal(err)
	}
	packets, err := startPackets(at, to, 500)
	if err != nil {
		t.Fatal(err)
	}
	requests, dials := startRequests(at, to, 5*time.Millisecond), startDials(at, to, 50)
	await(t, "the flow before", func() error { return packets.CheckComplete(100 * time.Millisecond) })
	// A call without a connection finds no network and fails at once, which is no stall.
	await(t, "the requests before", func() error {
		for _, call := range requests.begun(time.Time{}, time.Now()) {
			if call.Error == "" {
				return nil
			}
		}
		return errors.New("no request was answered")
	})
	from := time.Now()
	if err := loopback(at, false); err != nil {
		t.Fatal(err)
	}
	await(t, "the outage", func() error {
		if gap := packets.Gap(from, time.Now()); gap < 150*time.Millisecond {
			return fmt.Errorf("gap of %s", gap)
		}
		return nil
	})
	if err := packets.CheckComplete(100 * time.Millisecond); err == nil {
		t.Error("the flow counts as complete in the outage")
	}
	if err := loopback(at, true); err != nil {
		t.Fatal(err)
	}
	await(t, "the flow after", func() error { return packets.CheckComplete(100 * time.Millisecond) })
	end := time.Now()
	for _, closer := range []interface{ Close() error }{packets, requests, dials, server} {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	if lost, sent := packets.Lost(from, end); lost < 50 || lost >= sent {
		t.Errorf("%d of %d packets lost in an outage of 150 ms at 500 a second", lost, sent)
	}
	longest, delayed := time.Duration(0), 0
	for _, call := range requests.begun(time.Time{}, end) {
		if call.At.Add(time.Duration(call.Long)).After(from) {
			longest = max(longest, time.Duration(call.Long))
		}
	}
	for _, call := range dials.begun(from, end) {
		if call.Error != "" || time.Duration(call.Long) > 100*time.Millisecond {
			delayed++
		}
	}
	if longest < 100*time.Millisecond || delayed == 0 {
		t.Errorf("longest request %s, %d new connections delayed; want 100 ms or more, and some", longest, delayed)
	}
}
