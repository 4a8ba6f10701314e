package sniff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

// Finding is a forbidden frame, and the link on which it arrived.
type Finding struct {
	At   time.Time // of the arrival, not of the check
	Link string
	From HardwareAddr
	Text string
}

// Capture reads every frame that enters a namespace, on all its links.
type Capture struct {
	fd      int
	names   map[int]string // names of links by index, filled on first use
	check   func(link string, frame []byte) string
	report  func(Finding)
	frames  atomic.Int64
	stopped atomic.Bool
	group   sync.WaitGroup
}

// readTimeout bounds a read, so that Close returns.
const readTimeout = 100 * time.Millisecond

// receiveBuffer is the size in bytes of the buffer for frames that arrive while the reader waits for a processor.
const receiveBuffer = 64 << 20

// Start captures in the namespace pinned at path until Close. check returns the problem of a
// frame, or an empty string; it reports each problem with report. Both run in one goroutine.
func Start(path string, check func(link string, frame []byte) string, found func(Finding)) (*Capture, error) {
	c := &Capture{names: map[int]string{}, check: check, report: found}
	err := netnsexec.Do(path, func() (err error) {
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open packet socket: %w", err)
		}
		timeout := unix.NsecToTimeval(int64(readTimeout))
		err = errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			// The socket receives nothing before it is bound to the protocol.
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL)}),
		)
		if err != nil {
			_ = unix.Close(c.fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture in %s: %w", path, err)
	}
	c.group.Go(c.read)
	return c, nil
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func (c *Capture) read() {
	buffer, control := make([]byte, 64<<10), make([]byte, 256)
	for !c.stopped.Load() {
		n, controlSize, _, from, err := unix.Recvmsg(c.fd, buffer, control, 0)
		if err != nil {
			continue // a timeout, or a link went down
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue // already checked on the link where it arrived
		}
		c.frames.Add(1)
		name := c.name(link.Ifindex)
		if text := c.check(name, buffer[:n]); text != "" {
			f := Finding{At: arrival(control[:controlSize]), Link: name, Text: text}
			if n >= 12 {
				f.From = HardwareAddr(buffer[6:12])
			}
			c.report(f)
		}
	}
}

// arrival returns the time at which the kernel received a frame, or the current time if the control
// messages do not contain it.
func arrival(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// name returns the name of a link, or an empty string if the link no longer exists.
func (c *Capture) name(index int) string {
	name, ok := c.names[index]
	if ok {
		return name
	}
	// An ioctl: netlink's list of all links is too slow for a capture.
	request, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	request.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(c.fd, unix.SIOCGIFNAME, request); err != nil {
		return ""
	}
	c.names[index] = request.Name()
	return c.names[index]
}

// Frames returns the number of checked frames.
func (c *Capture) Frames() int64 { return c.frames.Load() }

// Lost returns the number of frames that the kernel dropped since the last call because the
// reader was too slow.
func (c *Capture) Lost() (uint32, error) {
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("count lost frames: %w", err)
	}
	return stats.Drops, nil
}

// Close ends the capture.
func (c *Capture) Close() error {
	c.stopped.Store(true)
	c.group.Wait()
	return unix.Close(c.fd)
}
