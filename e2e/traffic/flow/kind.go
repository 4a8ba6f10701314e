package flow

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Kind is who speaks on a connection.
type Kind string

// The kinds of connections. All but Idle carry a line each interval.
const (
	Idle       Kind = "idle"        // nobody, until one exchange at the end
	Busy       Kind = "busy"        // the client asks, the server answers
	ClientPush Kind = "client-push" // the client; the server is silent
	ServerPush Kind = "server-push" // the server; the client is silent for ever
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Idle, Busy, ClientPush, ServerPush} }

// link is one connection that was opened.
type link struct {
	id     int
	kind   Kind
	target string
	conn   net.Conn
	lines  *bufio.Reader
	server string    // who answered
	opened time.Time // when

	stall time.Duration // the longest time between two signs of life
	err   error
}

// hold carries on until stop is closed and then proves that the connection lives:
// data that was sent after that moment arrives, each way in which it flows. A
// silence longer than patience is an end.
func (l *link) hold(ctx context.Context, interval, patience time.Duration, line int) error {
	switch l.kind {
	case Idle:
		return l.idle(ctx, patience)
	case Busy:
		return l.busy(ctx, interval, patience, line)
	case ClientPush:
		return l.clientPush(ctx, interval, patience)
	default:
		return l.serverPush(ctx, interval, patience)
	}
}

// idle waits without reading: an end that the network sends is seen by the exchange.
func (l *link) idle(ctx context.Context, patience time.Duration) error {
	<-ctx.Done()
	began := time.Now()
	err := l.exchange("alive", patience)
	l.stall = time.Since(began)
	return err
}

func (l *link) busy(ctx context.Context, interval, patience time.Duration, line int) error {
	for n := 0; ; n++ {
		last := ctx.Err() != nil
		began := time.Now()
		if err := l.exchange(fmt.Sprintf("%0*d", line, n), patience); err != nil {
			return err
		}
		l.stall = max(l.stall, time.Since(began))
		if last {
			return nil
		}
		pause(ctx, interval)
	}
}

func (l *link) clientPush(ctx context.Context, interval, patience time.Duration) error {
	sent := 0
	for ctx.Err() == nil {
		if err := l.write(strconv.Itoa(sent), patience); err != nil {
			return err
		}
		sent++
		pause(ctx, interval)
	}
	if err := l.write("count", patience); err != nil {
		return err
	}
	line, err := l.read(patience)
	if err != nil {
		return err
	}
	var got int
	var longest string
	if _, err := fmt.Sscan(line, &got, &longest); err != nil || got != sent {
		return fmt.Errorf("the server has counted %q of %d lines", line, sent)
	}
	l.stall, err = time.ParseDuration(longest)
	return err
}

// serverPush never writes. What may have been on its way when ctx ended is no
// proof: the server sends number n no earlier than n intervals after it answered.
func (l *link) serverPush(ctx context.Context, interval, patience time.Duration) error {
	enough := -1
	last := time.Now()
	for want := 0; enough < 0 || want <= enough; want++ {
		line, err := l.readUntil(ctx, patience)
		if err != nil {
			return err
		}
		if line != strconv.Itoa(want) {
			return fmt.Errorf("the server sent %q instead of %d", line, want)
		}
		l.stall, last = max(l.stall, time.Since(last)), time.Now()
		if ctx.Err() != nil && enough < 0 {
			enough = int(time.Since(l.opened)/interval) + 2
		}
	}
	return nil
}

// readUntil waits for as long as it takes while ctx lasts, and for patience after it.
func (l *link) readUntil(ctx context.Context, patience time.Duration) (string, error) {
	if ctx.Err() != nil {
		return l.read(patience)
	}
	_ = l.conn.SetReadDeadline(time.Time{})
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.conn.SetReadDeadline(time.Now().Add(patience))
		close(set)
	})
	line, err := l.lines.ReadString('\n')
	if !stop() {
		<-set
	}
	return strings.TrimSpace(line), err
}

func (l *link) exchange(text string, patience time.Duration) error {
	if err := l.write(text, patience); err != nil {
		return err
	}
	line, err := l.read(patience)
	if err == nil && line != text {
		err = fmt.Errorf("the server answered %q to %q", line, text)
	}
	return err
}

func (l *link) write(text string, patience time.Duration) error {
	_ = l.conn.SetWriteDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintln(l.conn, text)
	return err
}

func (l *link) read(patience time.Duration) (string, error) {
	_ = l.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := l.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
