package converge

import (
	"errors"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
)

const (
	fightAfter    = 5                // same change in as many passes running
	fightPause    = 30 * time.Second // that such a change is left alone; doubles
	maxFightPause = 10 * time.Minute // at most
)

// ErrFight says that the same change was needed again and again: somebody else
// undoes it each time.
var ErrFight = errors.New("somebody undoes this change each time; left alone for a while")

// fight is the history of one key that keeps changing.
type fight struct {
	signature string
	streak    int // passes running in which the change was made
	pause     time.Duration
	until     time.Time // left alone until then
}

func signature[S diff.Spec](c diff.Change[S]) string {
	var b strings.Builder
	b.WriteString(string(c.Op))
	for _, d := range c.Deltas() {
		b.WriteString("\x00" + d.Name + "\x00" + d.Have + "\x00" + d.Want)
	}
	return b.String()
}

// settle forgets the keys that needed no change in this pass.
func (s *stage[D, S]) settle(changes []diff.Change[S]) {
	if len(s.fights) == 0 {
		return
	}
	still := make(map[string]*fight, len(s.fights))
	for _, c := range changes {
		if f, ok := s.fights[c.Key]; ok {
			still[c.Key] = f
		}
	}
	s.fights = still
}

// withoutFights takes out the changes that are left alone for now.
func (s *stage[D, S]) withoutFights(p *pass[D], changes []diff.Change[S]) []diff.Change[S] {
	if len(s.fights) == 0 {
		return changes
	}
	var out []diff.Change[S]
	for _, c := range changes {
		f := s.fights[c.Key]
		if f == nil || f.streak < fightAfter || f.signature != signature(c) {
			out = append(out, c)
			continue
		}
		if f.until.IsZero() || p.now.After(f.until) {
			if !f.until.IsZero() {
				out = append(out, c)
				f.until = time.Time{}
				continue
			}
			f.pause = min(max(2*f.pause, fightPause), maxFightPause)
			f.until = p.now.Add(f.pause)
		}
		p.report.Fights = append(p.report.Fights, Problem{Kind: s.Name(), Key: c.Key, Err: ErrFight})
	}
	return out
}

// made counts a change that was made.
func (s *stage[D, S]) made(c diff.Change[S]) {
	sig := signature(c)
	f := s.fights[c.Key]
	if f == nil || f.signature != sig {
		f = &fight{signature: sig}
		s.fights[c.Key] = f
	}
	f.streak++
}
