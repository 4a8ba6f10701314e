package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

// delayLink delays every frame of a link, in both directions. It is between a node's port and the
// bridge: the port leaves the bridge, a veth joins it instead, and delayLink copies frames between
// the two. It needs no queueing discipline in the kernel.
type delayLink struct {
	ns    *netNS
	port  string
	delay atomic.Int64 // nanoseconds
	stop  context.CancelFunc
	files []*os.File
	group sync.WaitGroup
}

// frame is a packet from AF_PACKET with its virtio-net header.
type frame struct {
	raw []byte
	due time.Time
}

const (
	// maxFrame is the size of a virtio-net header and the largest offloaded segment.
	maxFrame = 10 + 14 + 4 + 65536
	// maxDelayed bounds the delayed frames of one direction. Like a queue, delayLink drops
	// further frames.
	maxDelayed = 4096
)

func outerEnd(port string) string { return port + "d" }
func innerEnd(port string) string { return port + "i" }

func newDelayer(s *netNS, port, bridge string, delay time.Duration) (*delayLink, error) {
	ctx, cancel := context.WithCancel(context.Background())
	d := &delayLink{ns: s, port: port, stop: cancel}
	d.set(delay)
	if err := d.connect(bridge); err != nil {
		return nil, errors.Join(fmt.Errorf("delay device %s: %w", port, err), d.close())
	}
	outer, inner := d.files[0], d.files[1]
	d.forward(ctx, outer, inner)
	d.forward(ctx, inner, outer)
	return d, nil
}

func (d *delayLink) set(delay time.Duration) { d.delay.Store(int64(delay)) }

// close stops the forwarding and removes the veth. Then the port is on no bridge.
func (d *delayLink) close() error {
	d.stop()
	for _, file := range d.files {
		_ = file.Close()
	}
	d.group.Wait()
	return d.ns.remove(outerEnd(d.port))
}

func (d *delayLink) connect(bridge string) error {
	if err := vethPair(d.ns, outerEnd(d.port), d.ns, innerEnd(d.port)); err != nil {
		return err
	}
	if err := d.ns.enslave(d.port, ""); err != nil {
		return err
	}
	if err := d.ns.enslave(outerEnd(d.port), bridge); err != nil {
		return err
	}
	for _, name := range []string{d.port, innerEnd(d.port)} {
		file, err := rawSocket(d.ns, name)
		if err != nil {
			return err
		}
		d.files = append(d.files, file)
	}
	return nil
}

// rawSocket opens a packet socket that receives all frames of a link. It preserves partial
// checksums and large segments (packet(7), PACKET_VNET_HDR).
func rawSocket(s *netNS, name string) (*os.File, error) {
	link, err := s.link.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", name, err)
	}
	index := link.Attrs().Index
	var file *os.File
	err = netnsexec.Do(s.path, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), "packet:"+name)
		// By default, the kernel also returns each sent frame to the sender's own socket.
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
				&unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}),
		)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: index})
	})
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, fmt.Errorf("open packet socket on %s: %w", name, err)
	}
	return file, nil
}

func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }

// forward copies frames in one direction until the sockets are closed.
func (d *delayLink) forward(ctx context.Context, from, to *os.File) {
	queue := make(chan frame, maxDelayed)
	d.group.Go(func() {
		defer close(queue)
		buffer := make([]byte, maxFrame)
		for {
			n, err := from.Read(buffer)
			if errors.Is(err, os.ErrClosed) || ctx.Err() != nil {
				return
			}
			if err != nil {
				continue // such as ENETDOWN while the link is down
			}
			select {
			case queue <- frame{raw: append([]byte(nil), buffer[:n]...), due: time.Now().Add(time.Duration(d.delay.Load()))}:
			default:
			}
		}
	})
	d.group.Go(func() {
		for f := range queue {
			select {
			case <-ctx.Done():
				continue
			case <-time.After(time.Until(f.due)):
				_, _ = to.Write(f.raw) // drop frames that cannot be sent
			}
		}
	})
}
