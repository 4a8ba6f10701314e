package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// TestNftSpoofed checks that a node can send VXLAN only with plain IPv4 and IPv6 inside, and never
// with another node's address. All families outside and inside are checked. The kernel would remove
// a VLAN tag, or two, and deliver the packet behind it.
func TestNftSpoofed(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements(nftNodesBandC()...)
	l.expectPlainOnly(t, "4803", append(nftVXLANShapes(), nftVXLANShape{"VNI of the link between gateways", nftWithByte(6, desired.TransitVNI), false}))
	l.expectDropCount("vxlan", 4)
}

// TestNftTransitSource checks that VXLAN with transit traffic is accepted from the other gateways
// of the cluster only, with any address inside. Other nodes send VXLAN between nodes.
func TestNftTransitSource(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements(append(nftNodesBandC(), "siblings4 "+nftPodC, "siblings6 "+nftPodC6)...)
	for _, outer := range [][2]string{{nftPodB, nftPodGW}, {nftPodB6, nftPodGW6}, {nftPodC, nftPodGW}, {nftPodC6, nftPodGW6}} {
		gateway := outer[0] == nftPodC || outer[0] == nftPodC6
		for _, inner := range []string{"10.200.0.1", "fd00:200::1"} { // of another cluster
			frame := nftFrameFrom(netip.MustParseAddr(inner))
			if !l.isAccepted(outer[0], outer[1], "4803", frame) {
				t.Errorf("%s with %s: the VNI of nodes is not accepted", outer[0], inner)
			}
			if taken := l.isAccepted(outer[0], outer[1], "4803", nftWithByte(6, desired.TransitVNI)(frame)); taken != gateway {
				t.Errorf("%s with %s: the VNI of gateways is accepted: %t, want %t", outer[0], inner, taken, gateway)
			}
		}
	}
	l.expectDropCount("vxlan", 4)
}

// nftNodesBandC returns elements for two nodes with two addresses of the pod each.
func nftNodesBandC() []string {
	lines := []string{"nodes4 " + nftPodGW, "nodes6 " + nftPodGW6}
	for _, node := range [][2]string{{nftPodB, nftPodB6}, {nftPodC, nftPodC6}} {
		lines = append(lines, "nodes4 "+node[0], "nodes6 "+node[1],
			"self44 "+node[0]+" . "+node[0], "self46 "+node[1]+" . "+node[0],
			"self64 "+node[0]+" . "+node[1], "self66 "+node[1]+" . "+node[1])
	}
	return lines
}

// TestNftOverlayShapes checks that VXLAN of another cluster has only plain IPv4 or IPv6 inside,
// with a source of that cluster.
func TestNftOverlayShapes(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	lines := []string{"overlays4 51884", "overlays6 51884"}
	for _, outer := range []string{nftPodB, nftPodB6} {
		digit := "4"
		if outer == nftPodB6 {
			digit = "6"
		}
		lines = append(lines, "sources4in"+digit+" "+outer+" . 51884 . "+nftPodB, "sources6in"+digit+" "+outer+" . 51884 . "+nftPodB6)
	}
	l.elements(lines...)
	l.expectPlainOnly(t, "51884", nftVXLANShapes())
	l.expectDropCount("overlay", 4)
}

// nftVXLANShape changes a plain VXLAN frame.
type nftVXLANShape struct {
	name   string
	change func(frame []byte) []byte
	passes bool // with an address inside that the sender may use
}

func nftVXLANShapes() []nftVXLANShape {
	return []nftVXLANShape{
		{"plain", func(frame []byte) []byte { return frame }, true},
		{"fragment", nftWithByte(nftFrameIP+6, 0x20), true}, // more fragments; traffic class bits of IPv6 do not matter
		{"priority tag", nftWithVLAN(0x8100, 0), false},
		{"VLAN 7", nftWithVLAN(0x8100, 7), false},
		{"802.1ad", nftWithVLAN(0x88a8, 0), false},
		{"two tags", func(f []byte) []byte { return nftWithVLAN(0x88a8, 0)(nftWithVLAN(0x8100, 0)(f)) }, false},
		{"two priority tags", func(f []byte) []byte { return nftWithVLAN(0x8100, 0)(nftWithVLAN(0x8100, 0)(f)) }, false},
		{"old tag of QinQ", nftWithVLAN(0x9100, 0), false},
		{"ARP", nftWithEtherType(0x0806), false},
		{"MPLS", nftWithEtherType(0x8847), false},
		{"PPPoE", nftWithEtherType(0x8864), false},
		{"802.3 length", nftWithEtherType(0x0040), false},
		{"version 4 as IPv6, or 6 as IPv4", nftOtherType, false},
		{"version 0", nftWithByte(nftFrameIP, 0x05), false},
		{"no flag of the VNI", nftWithByte(0, 0), false},
		{"GBP", nftWithByte(0, 0x88), false},
		{"GPE", nftWithByte(0, 0x0c), false},
		{"reserved bits", nftWithByte(3, 1), false},
		{"cut off", func(f []byte) []byte { return f[:nftFrameIP-1] }, false},
	}
}

// expectPlainOnly sends frames of each shape from node B to a VXLAN port. It uses both families
// outside, and addresses of two nodes inside. Only shapes that may pass, with an address of B, are
// accepted.
func (l *nftLab) expectPlainOnly(t *testing.T, port string, shapes []nftVXLANShape) {
	t.Helper()
	for _, outer := range [][2]string{{nftPodB, nftPodGW}, {nftPodB6, nftPodGW6}} {
		for _, inner := range []string{nftPodB, nftPodB6, nftPodC, nftPodC6} {
			own := inner == nftPodB || inner == nftPodB6
			for _, shape := range shapes {
				t.Run(fmt.Sprintf("%s with %s, %s", outer[0], inner, shape.name), func(t *testing.T) {
					frame := shape.change(nftFrameFrom(netip.MustParseAddr(inner)))
					if taken := l.isAccepted(outer[0], outer[1], port, frame); taken != (own && shape.passes) {
						t.Errorf("accepted: %t, want %t", taken, own && shape.passes)
					}
				})
			}
		}
	}
}

// isAccepted sends a payload, and then a plain frame, from an address of the pod to a VXLAN port of
// the node. It reports whether the payload passes the rules.
func (l *nftLab) isAccepted(from, to, port string, payload []byte) bool {
	l.t.Helper()
	address := netip.MustParseAddr(from)
	plain := nftFrameFrom(address)
	var server net.PacketConn
	l.node.inside(func() {
		conn, err := net.ListenPacket("udp", net.JoinHostPort(to, port))
		// If another test forks, the child has a copy of the last listener until it calls
		// exec.
		for end := time.Now().Add(nftTimeout); errors.Is(err, unix.EADDRINUSE) && time.Now().Before(end); {
			<-time.After(time.Millisecond)
			conn, err = net.ListenPacket("udp", net.JoinHostPort(to, port))
		}
		l.node.must(err, "listen on "+to)
		server = conn
	})
	defer func() { _ = server.Close() }()
	conn := l.pod.dial(from, to, port)
	defer func() { _ = conn.Close() }()
	for _, p := range [][]byte{payload, plain} {
		_, err := conn.Write(p)
		l.pod.must(err, "send a frame")
	}
	l.node.must(server.SetReadDeadline(time.Now().Add(nftTimeout)), "set a deadline")
	buf := make([]byte, 256)
	n, _, err := server.ReadFrom(buf)
	l.node.must(err, "receive the plain frame")
	return !bytes.Equal(buf[:n], plain) || bytes.Equal(payload, plain)
}

// nftFrameIP is the offset of the inner packet in a frame of nftFrameFrom.
const nftFrameIP = 8 + 14

// nftFrameFrom returns the payload of a VXLAN datagram with a packet from an address, including
// the VXLAN header.
func nftFrameFrom(from netip.Addr) []byte {
	frame := make([]byte, 8+12, 128)
	frame[0], frame[6] = 0x08, desired.NodeVNI
	if from.Is4() {
		ip := append([]byte{0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0}, from.AsSlice()...)
		return append(append(append(frame, 8, 0), ip...), make([]byte, 4+8)...)
	}
	ip := append([]byte{0x60, 0, 0, 0, 0, 8, 17, 64}, from.AsSlice()...)
	return append(append(append(frame, 0x86, 0xdd), ip...), make([]byte, 16+8)...)
}

// nftWithByte replaces one byte of a frame.
func nftWithByte(offset int, value byte) func([]byte) []byte {
	return func(frame []byte) []byte {
		frame[offset] = value
		return frame
	}
}

// nftWithEtherType replaces the EtherType of a frame.
func nftWithEtherType(etherType uint16) func([]byte) []byte {
	return func(frame []byte) []byte {
		copy(frame[nftFrameIP-2:], nftNetOrder16(etherType))
		return frame
	}
}

// nftWithVLAN puts a VLAN tag before the EtherType of a frame.
func nftWithVLAN(etherType, vlan uint16) func([]byte) []byte {
	return func(frame []byte) []byte {
		return slices.Insert(frame, nftFrameIP-2, append(nftNetOrder16(etherType), nftNetOrder16(vlan)...)...)
	}
}

// nftOtherType exchanges the EtherTypes of IPv4 and IPv6.
func nftOtherType(frame []byte) []byte {
	if frame[nftFrameIP-2] == 0x08 {
		return nftWithEtherType(0x86dd)(frame)
	}
	return nftWithEtherType(0x0800)(frame)
}
