package migration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/internal/randtest"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// simEnd is one gateway of the model: the agent, which may be down, and its kernel, which keeps
// forwarding.
type simEnd struct {
	pair      *Pair // nil = the agent is down
	restartAt time.Time
	fabric    []TunnelID  // later values of want
	at        []time.Time // arrival times of fabric
	want      TunnelID
	saved     Saved
	tunnels   []TunnelID // in the kernel
	use       TunnelID
	round     time.Time // time of the next round
	started   uint64
}

type simPacket struct {
	to  int
	due time.Time
	Outgoing
}

// model is two ends and the network between them.
type model struct {
	r      *rand.Rand
	now    time.Time
	ends   [2]*simEnd
	mail   []simPacket
	broken map[TunnelID]bool // a firewall drops its packets
	loss   float64
	deaf   [2]time.Time // an end receives no message before these times
	moving bool         // the first end moves to another endpoint
	log    []string
}

func (m *model) logf(format string, args ...any) {
	m.log = append(m.log, m.now.Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (m *model) send(from int, out []Outgoing) {
	e := m.ends[from]
	for _, o := range out {
		if m.r.Float64() < m.loss || m.broken[o.On] || !slices.Contains(e.tunnels, o.On) {
			continue
		}
		decoded, err := wire.Decode((&wire.Message{Tunnels: &o.Message}).Encode())
		if err != nil {
			panic(err)
		}
		delay := time.Duration(m.r.IntN(80)) * time.Millisecond
		m.mail = append(m.mail, simPacket{1 - from, m.now.Add(delay), Outgoing{o.On, *decoded.Tunnels}})
	}
}

// save stores the state of a pair and then sends its messages.
func (m *model) save(i int, out []Outgoing) {
	if len(out) > 0 {
		m.ends[i].saved = m.ends[i].pair.Saved()
		m.send(i, out)
	}
}

func (m *model) step(i int) {
	e := m.ends[i]
	for len(e.at) > 0 && !e.at[0].After(m.now) {
		e.want, e.fabric, e.at = e.fabric[0], e.fabric[1:], e.at[1:]
		m.logf("end %d wants %s", i, e.want)
	}
	if e.pair == nil {
		if e.restartAt.After(m.now) {
			return
		}
		e.started += 1 << 20
		e.pair = Restore(e.saved, e.want, nil, e.started, m.now)
		m.logf("end %d starts with %s over %s", i, e.saved.Tunnels, e.saved.Active)
	}
	e.pair.SetWant(e.want, nil, m.now)
	e.pair.SetSecondary(i == 0 && m.moving, m.now)
	out, _ := e.pair.Tick(m.now)
	m.save(i, out)
	if !e.round.After(m.now) {
		m.applyRound(i)
	}
}

// applyRound runs a round of end i: its kernel gets the tunnels of the pair.
func (m *model) applyRound(i int) {
	e := m.ends[i]
	e.round = m.now.Add(time.Duration(m.r.IntN([]int{300, 1500, 20000}[m.r.IntN(3)])) * time.Millisecond)
	e.saved = e.pair.Saved()
	if !slices.Equal(e.tunnels, e.pair.Tunnels()) || e.use != e.pair.active {
		m.logf("end %d has %s over %s", i, e.pair.Tunnels(), e.pair.active)
	}
	e.tunnels, e.use = e.pair.Tunnels(), e.pair.active
	e.pair.SetInstalled(e.tunnels, e.use, m.now)
}

func (m *model) deliver() {
	mail := m.mail
	m.mail = nil
	for _, f := range mail {
		e := m.ends[f.to]
		switch {
		case f.due.After(m.now):
			m.mail = append(m.mail, f)
		case m.deaf[f.to].After(m.now):
		case e.pair != nil && slices.Contains(e.tunnels, f.On):
			if reply, ok := e.pair.Receive(f.On, f.Message, m.now); ok {
				m.save(f.to, []Outgoing{{f.On, reply}})
			}
		}
	}
}

// checkInvariants returns an error if an end may lose packets now.
func (m *model) checkInvariants() error {
	for i, e := range m.ends {
		o := m.ends[1-i]
		if !slices.Contains(o.tunnels, e.use) {
			return fmt.Errorf("end %d sends over %s, which its peer does not have", i, e.use)
		}
		if m.broken[e.use] {
			return fmt.Errorf("end %d sends over %s, which does not work", i, e.use)
		}
		for j, a := range e.tunnels {
			for _, b := range e.tunnels[j+1:] {
				if a.conflictsWith(b) {
					return fmt.Errorf("end %d has %s and %s at once", i, a, b)
				}
			}
		}
	}
	return nil
}

// allTunnels returns tunnels that differ in driver, ports of both ends, port of one end, or
// epoch.
func allTunnels() []TunnelID {
	return []TunnelID{
		{Driver: "wireguard", Ports: [2]int{1000, 2000}, Epoch: 1},
		{Driver: "wireguard", Ports: [2]int{1001, 2001}, Epoch: 1},
		{Driver: "wireguard", Ports: [2]int{1001, 2000}, Epoch: 1},
		{Driver: "wireguard", Ports: [2]int{1000, 2002}, Epoch: 1},
		{Driver: "wireguard", Ports: [2]int{1000, 2000}, Epoch: 2},
		{Driver: "wireguard", Ports: [2]int{1001, 2000}, Epoch: 2},
		{Driver: "vxlan", Ports: [2]int{1000, 2000}},
		{Driver: "ipsec", Epoch: 1},
		{Driver: "ipsec", Epoch: 2},
	}
}

func newModel(seed uint64, quiet bool) *model {
	m := &model{r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0).UTC(), broken: map[TunnelID]bool{}}
	if !quiet {
		m.loss = m.r.Float64() * 0.3
	}
	all := allTunnels()
	first := all[0]
	for _, c := range all[1:] {
		m.broken[c] = m.r.IntN(5) == 0
	}
	for i := range m.ends {
		e := &simEnd{want: first, tunnels: []TunnelID{first}, use: first, started: uint64(i+1) << 40}
		e.pair = NewPair(first, nil, e.started, m.now)
		e.saved = e.pair.Saved()
		e.pair.SetInstalled(e.tunnels, e.use, m.now)
		m.ends[i] = e
	}
	m.scheduleChanges(all)
	return m
}

// scheduleChanges makes commits, which reach both ends in order but at different times.
func (m *model) scheduleChanges(all []TunnelID) {
	at := m.now
	var last [2]time.Time
	for range 1 + m.r.IntN(6) {
		gap := []int{500, 2000, 20000, 60000}[m.r.IntN(4)]
		at = at.Add(time.Duration(m.r.IntN(gap)) * time.Millisecond)
		c := all[m.r.IntN(len(all))]
		for i, e := range m.ends {
			arrival := at.Add(time.Duration(m.r.IntN([]int{200, 5000, 60000}[m.r.IntN(3)])) * time.Millisecond)
			if arrival.Before(last[i]) {
				arrival = last[i]
			}
			last[i] = arrival
			e.fabric, e.at = append(e.fabric, c), append(e.at, arrival)
		}
	}
}

const tick = 20 * time.Millisecond

func (m *model) run(span time.Duration, restarts bool) error {
	for end := m.now.Add(span); m.now.Before(end); m.now = m.now.Add(tick) {
		if restarts && m.r.IntN(1500) == 0 {
			e := m.ends[m.r.IntN(2)]
			e.pair, e.restartAt = nil, m.now.Add(time.Duration(m.r.IntN(15000))*time.Millisecond)
		}
		if restarts && m.r.IntN(1000) == 0 {
			m.moving = !m.moving
			m.logf("moving %t", m.moving)
		}
		if m.loss > 0 && m.r.IntN(1000) == 0 {
			m.deaf[m.r.IntN(2)] = m.now.Add(time.Duration(m.r.IntN(20000)) * time.Millisecond)
		}
		m.deliver()
		m.step(0)
		m.step(1)
		if err := m.checkInvariants(); err != nil {
			return err
		}
	}
	return nil
}

// checkSettled returns an error if the pair has not converged after a calm period.
func (m *model) checkSettled() error {
	for i, e := range m.ends {
		switch {
		case m.broken[e.want]:
			if p := e.pair.Progress(m.now); p.Reason == "" {
				return fmt.Errorf("end %d has no reason for not using %s", i, e.want)
			}
		case e.use != e.want || len(e.tunnels) != 1:
			return fmt.Errorf("end %d has %s over %s in the end, and wants %s: %s", i, e.tunnels, e.use, e.want, e.pair.Progress(m.now).Reason)
		}
		if _, due := e.pair.Tick(m.now); due.IsZero() == m.broken[e.want] {
			return fmt.Errorf("end %d probes at the wrong time: %s", i, due)
		}
	}
	if a, b := m.ends[0], m.ends[1]; a.use != b.use {
		return fmt.Errorf("the ends use %s and %s", a.use, b.use)
	}
	return nil
}

// TestModel migrates two ends with loss, reordering, firewalls, restarts, and commits that reach
// them at different times. No end ever sends over a tunnel on which its peer does not receive.
// Finally both ends have only the wanted tunnel, or a reason to use another.
func TestModel(t *testing.T) {
	t.Parallel()
	runs := uint64(randtest.Rounds(t, 20))
	// In these seeds an agent restarts between a decision and its write to the kernel. Or the
	// ends send over different tunnels, even without room for the wanted one.
	seeds := []uint64{138, 320, 524, 896}
	for seed := range runs {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		m := newModel(seed, seed%4 == 0)
		err := m.run(6*time.Minute, seed%2 == 0)
		if err == nil {
			m.loss, m.moving = 0, false
			if err = m.run(2*time.Minute, false); err == nil {
				err = m.checkSettled()
			}
		}
		if err != nil {
			t.Fatalf("seed %d, %v: %v, broken %v\n%s", seed, m.now, err, m.broken, strings.Join(m.log, "\n"))
		}
	}
}
