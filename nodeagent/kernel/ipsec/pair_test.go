package ipsec

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/childprocess"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
	"hawser.dev/hawser/schema/fabric"
)

func (e *end) states(t *testing.T) map[string]State {
	t.Helper()
	c, err := e.charon.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := readStates(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestHangs stops a charon: it is killed, and a round is triggered.
func TestHangs(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	to := a.to(b)
	a.converge(t, to)
	looks := make(chan struct{}, 100)
	watch := &Supervisor{
		Charon: a.charon, Desired: func() []desired.IPsec { return []desired.IPsec{to} }, Log: slog.New(slog.DiscardHandler),
		TriggerRound: func() { looks <- struct{}{} },
	}
	go func() { _ = watch.Run(t.Context()) }()
	process, err := a.charon.process()
	if err != nil || process < 0 {
		t.Fatal(process, err)
	}
	defer unix.Close(process)
	if err := sendSignal(process, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of charon", func() bool { return !a.charon.Alive() })
	<-looks
}

// linked returns a pair with an established connection.
func linked(t *testing.T) (a, b *end) {
	t.Helper()
	a, b = pair(t, false)
	b.converge(t, b.to(a))
	a.converge(t, a.to(b))
	a.reaches(t, b)
	return a, b
}

// TestBusy: a charon that works, but does not reply for longer than hangTimeout, is not killed.
func TestBusy(t *testing.T) {
	t.Parallel()
	a, b := linked(t)
	s := &Supervisor{Charon: a.charon, Log: slog.New(slog.DiscardHandler), TriggerRound: func() { t.Error("charon was killed") }}
	s.init()
	startedAt := time.Now()
	for range hangMinMisses {
		s.onNoReply(startedAt, errors.New("no reply"))
	}
	pid, err := a.charon.pid()
	if err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	before := childprocess.UsageOf(pid).Ran
	eventually(t, "work", func() bool { a.reaches(t, b); return childprocess.UsageOf(pid).Ran > before })
	s.onNoReply(startedAt.Add(hangTimeoutBusy-time.Second), errors.New("no reply"))
	if !a.charon.Alive() {
		t.Error("charon is gone")
	}
}

func (e *end) reaches(t *testing.T, o *end) {
	t.Helper()
	eventually(t, e.id+" reaches "+o.id, func() bool {
		_, err := e.sh("ping -c 1 -W 1 -I " + e.inner.String() + " " + o.inner.String())
		return err == nil
	})
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("six=%t", six), func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, six)
			b.converge(t, b.to(a))
			a.converge(t, a.to(b))
			a.reaches(t, b)
			s := a.states(t)[desired.IPsecPrefix+"b"]
			if !s.Up || s.Cipher != "AES_GCM_16-256" || !s.UDPEncap || s.Endpoint != netip.AddrPortFrom(b.outer, 14500) {
				t.Errorf("state %+v", s)
			}
			for _, e := range []*end{a, b} {
				other := map[*end]*end{a: b, b: a}[e]
				e.kind = NewConnections(e.charon) // as a new process
				if r := e.converge(t, e.to(other)); len(r.Changed) > 0 {
					t.Errorf("%s: a second pass changes %v", e.id, r.Changed)
				}
			}
		})
	}
}

func TestChaCha20(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	to, from := a.to(b), b.to(a)
	to.Proposals = []string{fabric.ProposalChaCha20}
	b.converge(t, from)
	a.converge(t, to)
	a.reaches(t, b)
	if s := a.states(t)[to.Name]; !strings.HasPrefix(s.Cipher, "CHACHA20_POLY1305") {
		t.Errorf("state %+v", s)
	}
}

// TestPinned: an attacker with a different key claims to be b.
func TestPinned(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	other := b.to(a)
	other.PrivateKey = fabric.Secret{1}
	b.converge(t, other)
	a.converge(t, a.to(b))
	// The attacker counts as connected until it receives the refusal.
	eventually(t, "refusal", func() bool {
		log, _ := os.ReadFile(b.charon.path("charon.log"))
		return strings.Contains(string(log), "IKE_SA deleted")
	})
	if s := a.states(t)["hawser-b"]; s.Up {
		t.Errorf("state %+v", s)
	}
}

// TestOneTouched changes one of two connections: the keys of the other do not change.
func TestOneTouched(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	second := netip.MustParseAddr("241.0.0.3")
	b.ip(t, "addr add 241.0.0.3/32 dev lo")
	there, back := a.to(b), b.to(a)
	there2, back2 := there, back
	there2.Name, there2.RemoteID, there2.RemoteAddr = "hawser-c", "c.test", second
	back2.Name, back2.LocalID, back2.LocalAddr = "hawser-c", "c.test", second
	b.converge(t, back, back2)
	a.converge(t, there, there2)
	both := func() bool { s := a.states(t); return s["hawser-b"].Up && s["hawser-c"].Up }
	eventually(t, "both up", both)
	before := a.states(t)
	there2.Rekey *= 2
	if r := a.converge(t, there, there2); len(r.Changed) != 1 || r.Changed[0].Key != "hawser-c" {
		t.Errorf("changed %v", r.Changed)
	}
	eventually(t, "new keys", func() bool {
		s := a.states(t)
		return s["hawser-c"].Up && s["hawser-c"].SPIIn != before["hawser-c"].SPIIn
	})
	if s := a.states(t); s["hawser-b"].SPIIn != before["hawser-b"].SPIIn || s["hawser-b"].SPIOut != before["hawser-b"].SPIOut {
		t.Errorf("the other connection changed from %+v to %+v", before["hawser-b"], s["hawser-b"])
	}
	a.converge(t, there)
	eventually(t, "the removed connection is gone at both ends", func() bool { return !b.states(t)["hawser-c"].Up })
	if s := a.states(t); s["hawser-b"].SPIIn != before["hawser-b"].SPIIn || s["hawser-c"].Up {
		t.Errorf("after a removal: %+v", s)
	}
	if keys := a.call(t, "get-keys", nil).List("keys"); !slices.Contains(keys, keyID(publicKey(a.seed))) {
		t.Errorf("keys %v", keys)
	}
	a.converge(t)
	if keys := a.call(t, "get-keys", nil).List("keys"); len(keys) != 0 {
		t.Errorf("keys are left: %v", keys)
	}
}

// TestOnlyMoved: the peer's endpoint may change at the responder, and the associations survive.
// Any other change recreates them.
func TestOnlyMoved(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	back := b.to(a)
	b.converge(t, back)
	a.converge(t, a.to(b))
	up := func() bool { return a.states(t)["hawser-b"].Up && b.states(t)["hawser-a"].Up }
	eventually(t, "up", up)
	before := b.states(t)["hawser-a"]
	for _, remote := range []string{"203.0.113.9:14500", "203.0.113.9:14501", "203.0.113.1:14500"} {
		back.Remote = netip.MustParseAddrPort(remote)
		if r := b.converge(t, back); len(r.Changed) != 1 {
			t.Errorf("%s: changed %v", remote, r.Changed)
		}
		if s := b.states(t)["hawser-a"]; !s.Up || s.SPIIn != before.SPIIn {
			t.Errorf("%s: was %+v, is %+v", remote, before, s)
		}
	}
	if ike := a.states(t)["hawser-b"]; ike.SPIOut != before.SPIIn {
		t.Errorf("the peer has %+v", ike)
	}
	back.Rekey *= 2
	b.converge(t, back)
	eventually(t, "the end of the old associations", func() bool { return b.states(t)["hawser-a"].SPIIn != before.SPIIn })
}

// TestRekey replaces keys repeatedly under traffic. The connection must survive; the scenarios
// of package e2e measure the loss.
func TestRekey(t *testing.T) {
	t.Parallel()
	a, b := linked(t)
	for range 3 {
		before := a.states(t)["hawser-b"]
		a.call(t, "rekey", vici.Section{"child": childName(new(a.to(b)), false)})
		eventually(t, "new keys", func() bool {
			s := a.states(t)["hawser-b"]
			return s.Up && s.SPIIn != before.SPIIn && s.SPIOut != before.SPIOut
		})
		a.call(t, "rekey", vici.Section{"ike": "hawser-b"})
		a.reaches(t, b)
		b.reaches(t, a)
	}
}

// TestReturns kills a charon: the supervisors of both ends restore the connection.
func TestReturns(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	wanted := map[*end]desired.IPsec{a: a.to(b), b: b.to(a)}
	for e, w := range wanted {
		e.converge(t, w)
		watch := &Supervisor{Charon: e.charon, Desired: func() []desired.IPsec { return []desired.IPsec{w} }, Log: slog.New(slog.DiscardHandler), TriggerRound: func() {}}
		go func() { _ = watch.Run(t.Context()) }()
	}
	a.reaches(t, b)
	for _, e := range []*end{a, b} {
		pid, err := e.charon.pid()
		if err != nil || pid == 0 {
			t.Fatal(pid, err)
		}
		if err := e.charon.killHung(pid); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of charon", func() bool { return !e.charon.Alive() })
		e.inside(t, func() error { return e.charon.Start(t.Context(), 1500, 14500) })
		e.converge(t, wanted[e])
		a.reaches(t, b)
		b.reaches(t, a)
	}
}
