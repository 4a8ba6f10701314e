// Package socket sets the Linux socket options that the agent's servers and
// probes need: binding to an address that does not exist yet, and binding to a
// device that has no address.
package socket

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Options says how a socket is bound. Its Control method fits
// net.ListenConfig and net.Dialer.
type Options struct {
	// Freebind allows an address that no interface has (ip(7), IP_FREEBIND): a
	// socket bound so works as soon as the address appears and survives its removal.
	Freebind bool
	// Device binds to one interface (socket(7), SO_BINDTODEVICE), which also fixes
	// the way of outgoing packets: without a matching route the kernel takes an
	// IPv4 destination as on-link there.
	Device string
	// HopLimit is the hop limit of what is sent, 1 to 255; 0 = what the host has for all.
	// With 1 nobody passes it on: it gets to the other end of a link, or nowhere.
	HopLimit int
	// DontFragment is for a UDP socket about paths: what it sends is never split, nor held to
	// what a route or an ICMP message says of the path's MTU (the device's counts, or a
	// value that was found would stand for ever); what it gets tells by which interface it
	// came; and its buffer holds more, as small and large messages share it.
	DontFragment bool
}

// Control applies the options before the socket is bound.
func (o Options) Control(network, address string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) { failed = o.apply(network, int(fd)) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("prepare %s socket for %s: %w", network, address, err)
	}
	return nil
}

// Network names the network of one family for package net: base is udp or tcp.
func Network(base string, addr netip.Addr) string {
	if addr.Is4() {
		return base + "4"
	}
	return base + "6"
}
