package lab

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// receiveTTL makes a socket report the time to live of received packets (ip(7)).
func receiveTTL(raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTTL, 1) })
	return errors.Join(err, set)
}

func ttlOf(t *testing.T, control []byte) int {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	t.Fatal("the socket reported no time to live")
	return 0
}
