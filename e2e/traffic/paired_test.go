package traffic

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestPairedErr(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                               string
		changed, control, sent, have, most int
		want                               string
	}{
		{"nothing lost", 0, 0, 100, 100, 10, ""},
		{"as much as the margin", 10, 0, 100, 100, 10, ""},
		{"one more", 11, 0, 100, 100, 10, "the changed flow lost 11 of 100 datagrams and the control flow 0 of 100: 11 more, and 10 are allowed"},
		{"a busy machine drops from both", 45, 40, 100, 60, 10, ""},
		{"the control lost more", 0, 40, 100, 60, 10, ""},
		{"the control lost most", 60, 60, 100, 40, 10, "the control flow lost 60 of 100 datagrams: no comparison is possible"},
		{"the control never ran", 0, 0, 0, 0, 10, "the control flow lost 0 of 0 datagrams: no comparison is possible"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := PairedReport{Margin: tt.most, Excess: tt.changed - tt.control}
			r.Changed.Lost, r.Changed.Sent = tt.changed, tt.sent
			r.Control.Lost, r.Control.Sent, r.Control.Received = tt.control, tt.sent, tt.have
			got := ""
			if err := r.Err(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Err() = %q, want %q", got, tt.want)
			}
		})
	}
}

// lossy drops every datagram after the first ones.
type lossy struct {
	net.Conn
	first *int
}

func (l lossy) Write(b []byte) (int, error) {
	if *l.first--; *l.first < 0 {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// TestPaired drops datagrams of the changed flow only, and expects them in the excess.
func TestPaired(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.serve("one")
	first := 20
	one := UDP{Target: "127.0.0.1:7000", Rate: 100, Size: 64, Count: 50, Threshold: time.Second, Grace: time.Second, Dial: s.dial}
	b := Paired{Changed: one, Control: one, Margin: 5}
	b.Control.Grace = time.Minute
	b.Changed.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.dial(ctx, network, address)
		return lossy{conn, &first}, err
	}
	ready := make(chan bool, 2)
	b.Ready = func() { ready <- true }
	report, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Control.Lost != 0 || report.Changed.Lost < 30 || report.Excess != report.Changed.Lost || report.Err() == nil {
		t.Errorf("changed lost %d, control %d, excess %d, %v", report.Changed.Lost, report.Control.Lost, report.Excess, report.Err())
	}
	if len(ready) != 1 {
		t.Errorf("Ready was called %d times, want once", len(ready))
	}
}

// TestPairedRefuses tests that a flow that cannot start ends the other flow.
func TestPairedRefuses(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.serve("one")
	valid := UDP{Target: "127.0.0.1:7000", Rate: 100, Size: 64, Dial: s.dial}
	invalid := valid
	invalid.Rate = 0
	for _, b := range []Paired{{Changed: invalid, Control: valid}, {Changed: valid, Control: invalid}} {
		if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "rate 0: from 1 to 100000 datagrams a second") {
			t.Errorf("error %v", err)
		}
	}
}
