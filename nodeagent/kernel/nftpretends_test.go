package kernel

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestNftPretends: a node sends no VXLAN with another node's address inside, whatever
// families are outside and inside; with its own it does.
func TestNftPretends(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	lines := []string{"nodes4 " + nftPodGW, "nodes6 " + nftPodGW6}
	for _, node := range [][2]string{{nftPodB, nftPodB6}, {nftPodC, nftPodC6}} {
		lines = append(lines, "nodes4 "+node[0], "nodes6 "+node[1],
			"self44 "+node[0]+" . "+node[0], "self46 "+node[1]+" . "+node[0],
			"self64 "+node[0]+" . "+node[1], "self66 "+node[1]+" . "+node[1])
	}
	l.elements(lines...)
	at := map[string]net.PacketConn{}
	for _, address := range []string{nftPodGW, nftPodGW6} {
		l.node.inside(func() {
			conn, err := net.ListenPacket("udp", net.JoinHostPort(address, "4803"))
			l.node.must(err, "listen on "+address)
			t.Cleanup(func() { _ = conn.Close() })
			at[address] = conn
		})
	}
	for _, outer := range [][2]string{{nftPodB, nftPodGW}, {nftPodB6, nftPodGW6}} {
		for inner, taken := range map[string]bool{nftPodB: true, nftPodB6: true, nftPodC: false, nftPodC6: false} {
			t.Run(outer[0]+" with "+inner, func(t *testing.T) {
				frame := nftFrameFrom(netip.MustParseAddr(inner))
				l.pod.inside(func() {
					dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(outer[0])}}
					conn, err := dialer.Dial("udp", net.JoinHostPort(outer[1], "4803"))
					l.pod.must(err, "dial "+outer[1])
					defer func() { _ = conn.Close() }()
					_, err = conn.Write(frame)
					l.pod.must(err, "send a frame")
				})
				patience := nftNoWait
				if taken {
					patience = nftQuick
				}
				if err := at[outer[1]].SetReadDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := at[outer[1]].ReadFrom(make([]byte, 128)); (err == nil) != taken {
					t.Errorf("taken: %t, want %t", err == nil, taken)
				}
			})
		}
	}
	l.drops("vxlan", 4)
}

// nftFrameFrom is what VXLAN carries of a datagram from an address, VXLAN's own header
// included.
func nftFrameFrom(from netip.Addr) []byte {
	frame := make([]byte, 8+12, 128)
	if from.Is4() {
		ip := append([]byte{0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0}, from.AsSlice()...)
		return append(append(append(frame, 8, 0), ip...), make([]byte, 4+8)...)
	}
	ip := append([]byte{0x60, 0, 0, 0, 0, 8, 17, 64}, from.AsSlice()...)
	return append(append(append(frame, 0x86, 0xdd), ip...), make([]byte, 16+8)...)
}
