// Package socket sets the Linux socket options that the agent's servers and
// probes need: binding to an address that does not exist yet, and binding to a
// device that has no address.
package socket

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Options are the options of a socket. The method Control fits net.ListenConfig and net.Dialer.
type Options struct {
	// Freebind allows an address that no interface has (ip(7), IP_FREEBIND): the socket works
	// as soon as the address appears, and survives its removal.
	Freebind bool
	// Device binds the socket to one interface (socket(7), SO_BINDTODEVICE), which also sends
	// its packets. Without a matching route the kernel treats an IPv4 destination as on-link
	// there.
	Device string
	// HopLimit is the hop limit of sent packets, 1 to 255; 0 is the host's default. Routers do
	// not forward packets with hop limit 1, so that they reach only the other end of a link.
	HopLimit int
	// DontFragment is for UDP sockets that measure paths. Sent packets are never fragmented and
	// ignore the path MTU of routes and ICMP; only the device's MTU limits them. Otherwise a
	// discovered path MTU would never change. The socket reports the interface of received
	// packets. The receive buffer is larger, because small and large messages share it.
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

// Network returns the network for package net: base, such as udp or tcp, with the family of addr.
func Network(base string, addr netip.Addr) string {
	if addr.Is4() {
		return base + "4"
	}
	return base + "6"
}
