package vici

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake starts a charon that serves one connection from a script: for each step it reads a
// packet and sends the packets of the step.
func fake(t *testing.T, steps ...[][]byte) (socket string, got <-chan []byte) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "charon.vici")
	return socket, serve(t, socket, steps)
}

func serve(t *testing.T, socket string, steps [][][]byte) <-chan []byte {
	t.Helper()
	dir, err := os.Open(filepath.Dir(socket)) // the path may be longer than an address
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
	requests := make(chan []byte, len(steps))
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, step := range steps {
			var header [4]byte
			if _, err := io.ReadFull(conn, header[:]); err != nil {
				return
			}
			raw := make([]byte, binary.BigEndian.Uint32(header[:]))
			if _, err := io.ReadFull(conn, raw); err != nil {
				return
			}
			requests <- raw
			for _, answer := range step {
				_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
			}
		}
		_, _ = io.Copy(io.Discard, conn)
	}()
	return requests
}

func encoded(t *testing.T, kind byte, name string, s Section) []byte {
	t.Helper()
	head := []byte{kind}
	if name != "" {
		head = appendName(nil, kind, name)
	}
	raw, err := encode(head, s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func dial(t *testing.T, socket string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCall(t *testing.T) {
	t.Parallel()
	socket, got := fake(t, [][]byte{encoded(t, cmdResponse, "", Section{"daemon": "fake"})})
	c := dial(t, socket)
	have, err := c.Call(t.Context(), "version", Section{"a": "b"})
	if err != nil || have.Text("daemon") != "fake" {
		t.Errorf("answer %v, error %v", have, err)
	}
	if raw := <-got; !bytes.Equal(raw, []byte("\x00\x07version\x03\x01a\x00\x01b")) {
		t.Errorf("sent %q", raw)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	socket, got := fake(t,
		[][]byte{{eventConfirm}},
		[][]byte{encoded(t, event, "list-sa", Section{"one": Section{}}), encoded(t, event, "list-sa", readmeSection()), encoded(t, cmdResponse, "", nil)},
		[][]byte{encoded(t, event, "list-sa", Section{}), {eventConfirm}})
	var have []Section
	err := dial(t, socket).Stream(t.Context(), "list-sas", "list-sa", nil, func(s Section) error {
		have = append(have, s)
		return nil
	})
	if d := cmp.Diff([]Section{{"one": Section{}}, readmeSection()}, have); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, want := range []string{"\x03\x07list-sa", "\x00\x08list-sas", "\x04\x07list-sa"} {
		if raw := <-got; string(raw) != want {
			t.Errorf("sent %q, want %q", raw, want)
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	socket, _ := fake(t, [][]byte{{eventConfirm}, encoded(t, event, "child-rekey", Section{"a": "1"})})
	stop := errors.New("enough")
	err := dial(t, socket).Listen(t.Context(), []string{"child-rekey"}, func(name string, s Section) error {
		if name != "child-rekey" || s.Text("a") != "1" {
			t.Errorf("event %s %v", name, s)
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

func TestCallFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		answer  []byte
		refused bool
		want    string
	}{
		{"refused", encoded(t, cmdResponse, "", Section{"success": "no", "errmsg": "no such thing"}), true,
			"vici command version: charon refuses: no such thing"},
		{"unknown", []byte{cmdUnknown}, true, "vici command version: charon refuses: unknown command"},
		{"confirm", []byte{eventConfirm}, false, "vici command version: packet of type 5"},
		{"empty", nil, false, "vici command version: not a vici message: empty"},
		{"type", []byte{99}, false, "vici command version: not a vici message: packet of type 99"},
		{"broken", []byte{cmdResponse, keyValue}, false, "vici command version: not a vici message: ends in the middle, byte 1 of 1"},
	}
	for _, tt := range tests {
		socket, _ := fake(t, [][]byte{tt.answer})
		_, err := dial(t, socket).Call(t.Context(), "version", nil)
		if err == nil || err.Error() != tt.want || errors.Is(err, ErrRefused) != tt.refused {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestRegisterUnknownEvent(t *testing.T) {
	t.Parallel()
	socket, _ := fake(t, [][]byte{{eventUnknown}})
	err := dial(t, socket).Stream(t.Context(), "x", "nothing", nil, nil)
	if err == nil || err.Error() != "register vici event nothing: packet of type 6" {
		t.Errorf("error %v", err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	socket, _ := fake(t, [][]byte{})
	c := dial(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, "version", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestTooLong(t *testing.T) {
	t.Parallel()
	socket, _ := fake(t, [][]byte{make([]byte, maxSegment+1)})
	c := dial(t, socket)
	if _, err := c.Call(t.Context(), "version", nil); !errors.Is(err, ErrFormat) {
		t.Errorf("error %v", err)
	}
	list := make([]string, 20)
	for i := range list {
		list[i] = strings.Repeat("x", 60000)
	}
	if _, err := c.Call(t.Context(), "version", Section{"a": list}); err == nil || !strings.Contains(err.Error(), "(maximum 524288)") {
		t.Errorf("error %v", err)
	}
}

// TestLongPath has a socket whose path does not fit an address.
func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "charon.vici")
	serve(t, socket, [][][]byte{{encoded(t, cmdResponse, "", nil)}})
	if _, err := dial(t, socket).Call(t.Context(), "version", nil); err != nil {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), filepath.Join(dir, "no", "such")); err == nil {
		t.Error("connected to nothing")
	}
}
