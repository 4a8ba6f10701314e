package migration

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the tables of docs/gateways.md")

// document is where the tables are shown, each behind a mark.
const document = "../../../docs/gateways.md"

// TestDocument: the tables in the document are those of the code.
func TestDocument(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for mark, want := range map[string]string{"pair": table(pairTransitions()), "tunnel": table(tunnelTransitions())} {
		before, rest, found := strings.Cut(text, "<!-- states of a "+mark+" -->\n\n")
		end := strings.Index(rest, "\n\n") + 1
		if !found || end == 0 {
			t.Fatalf("%s has no mark of a %s", document, mark)
		}
		if rest[:end] != want {
			if !*update {
				t.Errorf("%s says of a %s:\n%s\nwant:\n%s\ngo test ./nodeagent/peer/migration -run TestDocument -update", document, mark, rest[:end], want)
			}
			text = before + "<!-- states of a " + mark + " -->\n\n" + want + rest[end:]
		}
	}
	if *update {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTables: what can happen to two ends takes every row of both tables, and at no moment
// is a pair in a state that its tunnels contradict.
func TestTables(t *testing.T) {
	t.Parallel()
	pairs, tunnels := map[string]bool{}, map[string]bool{}
	seeds := []uint64{138, 320, 524}
	for seed := range uint64(4) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		m := newModel(seed, seed%4 == 0)
		begin := m.now
		for end := m.now.Add(8 * time.Minute); m.now.Before(end); {
			calm := m.now.Sub(begin) >= 6*time.Minute
			if calm {
				m.loss, m.aside = 0, false
			}
			for _, e := range m.ends {
				if e.pair != nil {
					watch(e.pair.table, pairs)
					watch(e.pair.stages, tunnels)
				}
			}
			if err := m.run(tick, seed%2 == 0 && !calm); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for i, e := range m.ends {
				if p := e.pair; p != nil {
					p.advance(m.now)
					if p.state == Active != (len(p.tunnels) == 1 && !p.kernelBehind(m.now)) && p.target() == p.active || p.state == SwitchingOver != p.kernelBehind(m.now) {
						t.Fatalf("seed %d, end %d: %s with %s over %s", seed, i, p.state, p.Tunnels(), p.active)
					}
				}
			}
		}
	}
	midway(t, func(p *Pair) {
		watch(p.table, pairs)
		watch(p.stages, tunnels)
	})
	stranded(t, func(p *Pair) {
		watch(p.table, pairs)
		watch(p.stages, tunnels)
	})
	for _, r := range pairTransitions() {
		if !pairs[r.when] {
			t.Errorf("no pair ever came to: %s", r.when)
		}
	}
	for _, r := range tunnelTransitions() {
		if !tunnels[r.when+r.to.String()] {
			t.Errorf("no tunnel ever came to: %s, %s", r.when, r.to)
		}
	}
}

// midway restarts one end when the other one has begun to give up a tunnel: until its
// kernel is known to be past it, the other one keeps it.
func midway(t *testing.T, watch func(*Pair)) {
	t.Helper()
	was, is := of(1), of(2)
	w := two{now: time.Unix(0, 0).UTC()}
	for i := range w.ends {
		w.ends[i] = NewPair(was, nil, uint64(i+1)<<20, w.now)
		watch(w.ends[i])
	}
	w.run(5 * time.Second)
	for _, p := range w.ends {
		p.Want(is, nil, w.now)
	}
	here := w.ends[0]
	for old := here.find(was); old.stage != Withdrawn; {
		w.run(100 * time.Millisecond)
	}
	there := Restore(w.ends[1].Saved(), is, nil, 1<<40, w.now)
	if there.State() != SwitchingOver {
		t.Errorf("a pair is %s after a restart", there.State())
	}
	there.state = Retiring
	watch(there)
	there.advance(w.now)
	for range 100 { // ten seconds, in which there is no pass at the other end
		w.now = w.now.Add(100 * time.Millisecond)
		for _, h := range there.tunnels {
			h.installed = true
		}
		out, _ := there.Tick(w.now)
		for _, o := range out {
			if answer, ok := here.Receive(o.On, o.Message, w.now); ok {
				there.Receive(o.On, answer, w.now)
			}
		}
		here.Tick(w.now)
		if here.find(was) == nil {
			t.Fatal("a tunnel ends that the other kernel may send over")
		}
	}
	if have := here.find(was).stage; have != Withdrawing {
		t.Errorf("a tunnel that the other end may use is %s", have)
	}
	w.ends[1] = there
	w.run(20 * time.Second)
	for i, p := range w.ends {
		if p.State() != Active || p.Use() != is {
			t.Errorf("end %d is %s with %s over %s", i, p.State(), p.Tunnels(), p.Use())
		}
	}
}

// stranded has one end at a tunnel whose place the wanted one needs, when the other one
// begins without history: another node is that gateway now. They meet all the same.
func stranded(t *testing.T, watch func(*Pair)) {
	t.Helper()
	was, is := of(1), of(3)
	w := two{now: time.Unix(0, 0).UTC()}
	for i := range w.ends {
		w.ends[i] = NewPair(was, nil, uint64(i+1)<<20, w.now)
	}
	w.run(5 * time.Second)
	w.ends[0].Want(is, nil, w.now)
	w.run(5 * time.Second)
	w.ends[1] = NewPair(is, nil, 1<<40, w.now)
	for _, p := range w.ends {
		watch(p)
		p.Alive(false, w.now)
	}
	w.run(2 * secondaryAfter)
	for i, p := range w.ends {
		if p.Use() != is {
			t.Errorf("end %d is %s with %s over %s while it seems to be down", i, p.State(), p.Tunnels(), p.Use())
		}
	}
	for _, p := range w.ends {
		p.Alive(true, w.now)
	}
	w.run(20 * time.Second)
	for i, p := range w.ends {
		if p.State() != Active || p.Use() != is {
			t.Errorf("end %d is %s with %s over %s once it is up", i, p.State(), p.Tunnels(), p.Use())
		}
	}
}

// watch notes the rows of a table that are taken from now on.
func watch[S interface {
	~uint8
	String() string
}, On any](rows []transition[S, On], taken map[string]bool) {
	for i := range rows {
		r := &rows[i]
		do := r.action
		key := r.when
		if _, stage := any(r.to).(Stage); stage {
			key += r.to.String()
		}
		if taken[key] {
			continue
		}
		r.action = func(on On, now time.Time) {
			taken[key] = true
			if do != nil {
				do(on, now)
			}
		}
	}
}

// table gives a table for people, in Markdown.
func table[S interface {
	~uint8
	String() string
}, On any](rows []transition[S, On],
) string {
	var out strings.Builder
	out.WriteString("| in | when | it does | and is then |\n|---|---|---|---|\n")
	for _, r := range rows {
		var from []string
		for _, s := range r.from {
			from = append(from, s.String())
		}
		out.WriteString("| " + strings.Join(from, ", ") + " | " + r.when + " | " + r.then + " | " + r.to.String() + " |\n")
	}
	return out.String()
}
