package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

// space is a network namespace without a name. It ends with its last file descriptor, also if
// this process is killed.
type space struct {
	handle netns.NsHandle
	links  *netlink.Handle
	atEnd  []func() error
}

func newSpace() (*space, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open current network namespace: %w", err)
	}
	defer home.Close()
	handle, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	if err := netns.Set(home); err != nil {
		return nil, errors.Join(fmt.Errorf("leave network namespace: %w", err), handle.Close())
	}
	links, err := netlink.NewHandleAt(handle)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), handle.Close())
	}
	s := &space{handle: handle, links: links}
	lo, err := links.LinkByName("lo")
	if err == nil {
		err = links.LinkSetUp(lo)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set lo up: %w", err), s.close())
	}
	return s, nil
}

func (s *space) close() error {
	var errs []error
	for _, f := range s.atEnd {
		errs = append(errs, f())
	}
	s.links.Close()
	return errors.Join(append(errs, s.handle.Close())...)
}

// path returns a file of the namespace, valid while this process runs.
func (s *space) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(s.handle)) }

// inside runs f on a thread that is in the namespace.
func (s *space) inside(f func() error) error {
	return netnsexec.Do(s.path(), f)
}

// run starts a program in the namespace and waits for it.
func (s *space) run(input, name string, args ...string) error {
	return s.inside(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	})
}

// join connects two namespaces with a veth pair.
func join(a *space, nameA string, b *space, nameB string) error {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.handle)}
	if err := a.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth %s: %w", nameA, err)
	}
	return errors.Join(a.up(nameA), b.up(nameB))
}

func (s *space) up(name string) error {
	link, err := s.links.LinkByName(name)
	if err == nil {
		err = s.links.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func (s *space) address(name string, prefixes ...string) error {
	link, err := s.links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	for _, p := range prefixes {
		addr, err := netlink.ParseAddr(p)
		if err == nil {
			err = s.links.AddrAdd(link, addr)
		}
		if err != nil {
			return fmt.Errorf("add address %s to %s: %w", p, name, err)
		}
	}
	return nil
}

func (s *space) route(prefix, via string) error {
	_, dst, err := net.ParseCIDR(prefix)
	if err == nil {
		err = s.links.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)})
	}
	if err != nil {
		return fmt.Errorf("add route %s: %w", prefix, err)
	}
	return nil
}

// local makes every address of a prefix a local address of the namespace.
func (s *space) local(prefix string) error {
	lo, err := s.links.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, LinkIndex: lo.Attrs().Index, Scope: unix.RT_SCOPE_HOST}
	if err := s.links.RouteAdd(route); err != nil {
		return fmt.Errorf("add local route %s: %w", prefix, err)
	}
	return nil
}
