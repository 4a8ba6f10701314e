package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
)

// TestNftFlood lets a gateway of another cluster flood the probe port. It must not block the socket
// or its reader for other gateways. The rules drop packets beyond its rate. TCP is not limited,
// because it controls its own rate.
func TestNftFlood(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, own, honest, hostile string }{
		{"IPv4", nftTunAddr, "241.0.0.3", nftPeer},
		{"IPv6", nftTunAddr6, "fd00:41::3", nftPeer6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := nftNewLab(t)
			l.remote.address("hw-wg1", "241.0.0.3/24", "fd00:41::3/64")
			l.node.neighbour("hw-wg1", "fd00:41::3", l.remote.link("hw-wg1"))
			l.node.serve("tcp", net.JoinHostPort(tt.own, "4805"))
			l.elements("tunnels4 "+nftTunAddr, "tunnels6 "+nftTunAddr6, "peers4 241.0.0.3", "peers6 fd00:41::3")

			var server net.PacketConn
			var err error
			l.node.inside(func() { server, err = net.ListenPacket("udp", net.JoinHostPort(tt.own, "4804")) })
			l.node.must(err, "listen for probes")
			defer server.Close()
			var got atomic.Uint64
			go func() {
				buf := make([]byte, 64)
				for {
					n, from, err := server.ReadFrom(buf)
					if err != nil {
						return
					}
					if nftHost(from) == tt.hostile {
						got.Add(1)
						continue
					}
					_, _ = server.WriteTo(buf[:n], from)
				}
			}()

			flooding, stop := context.WithCancel(t.Context())
			startedAt := time.Now()
			flood := l.flood(flooding, tt.hostile, tt.own)
			honest := l.remote.dial(tt.honest, tt.own, "4804")
			const probes = 400
			answered := 0
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for i := range probes {
				<-pace.C
				if l.probe(honest, fmt.Sprint(i)) {
					answered++
				}
			}
			l.mustReply(l.remote, "tcp", net.JoinHostPort(tt.hostile, "0"), net.JoinHostPort(tt.own, "4805"))
			stop()
			sent := <-flood
			lasted := time.Since(startedAt)
			t.Logf("%d of %d honest probes answered; %d flood packets in %s (%.0f a second), %d reached the socket",
				answered, probes, sent, lasted.Round(time.Millisecond), float64(sent)/lasted.Seconds(), got.Load())
			if answered < probes*99/100 {
				t.Errorf("%d of %d honest probes answered", answered, probes)
			}
			if most := nftPeerRate * uint64(2+lasted/time.Second); got.Load() > most {
				t.Errorf("%d flood packets reached the socket, want at most %d", got.Load(), most)
			}
			if sent < 10*nftPeerRate {
				t.Errorf("the flood was too slow: %d packets", sent)
			}
			l.expectDropCount("flood", sent/2)
		})
	}
}

// flood sends to a gateway's probe port without a pause. It returns the number of packets when
// ctx is done.
func (l *nftLab) flood(ctx context.Context, from, to string) <-chan uint64 {
	l.t.Helper()
	conn := ipv4.NewPacketConn(l.remote.dial(from, to, "4804"))
	batch := make([]ipv4.Message, 64)
	for i := range batch {
		batch[i].Buffers = [][]byte{make([]byte, 60)}
	}
	out := make(chan uint64, 1)
	go func() {
		var sent uint64
		for ctx.Err() == nil {
			n, _ := conn.WriteBatch(batch, 0)
			sent += uint64(max(n, 0))
		}
		out <- sent
	}()
	return out
}

// probe sends one request, and reports whether a reply arrived: lost packets never arrive late.
func (l *nftLab) probe(conn net.Conn, text string) bool {
	l.t.Helper()
	l.remote.must(conn.SetDeadline(time.Now().Add(time.Second)), "set a deadline")
	_, err := conn.Write([]byte(text))
	l.remote.must(err, "send a probe")
	buf := make([]byte, 64)
	for {
		n, err := conn.Read(buf)
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return false
		}
		l.remote.must(err, "receive the reply")
		if string(buf[:n]) == text {
			return true
		}
	}
}
