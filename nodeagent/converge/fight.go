package converge

import (
	"errors"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
)

const (
	fightAfter    = 5                // passes in a row with the same change
	minFightPause = 30 * time.Second // doubles with each further fight
	maxFightPause = 10 * time.Minute
)

// ErrFight means that the same change was needed repeatedly.
var ErrFight = errors.New("another program reverts this change repeatedly; the agent retries later")

// fight is the history of one key that changes in each pass.
type fight struct {
	signature string
	streak    int // passes in a row that made the change
	pause     time.Duration
	until     time.Time // no write before; zero = no pause
}

// signature identifies a change: two changes with equal signatures write the same.
func signature[S diff.Spec](c diff.Change[S]) string {
	var b strings.Builder
	b.WriteString(string(c.Op))
	for _, d := range c.Deltas() {
		b.WriteString("\x00" + d.Name + "\x00" + d.Have + "\x00" + d.Want)
	}
	return b.String()
}

// forgetSettledFights deletes the history of keys that need no change in this pass.
func (s *stage[D, S]) forgetSettledFights(changes []diff.Change[S]) {
	if len(s.fights) == 0 {
		return
	}
	fights := make(map[string]*fight, len(s.fights))
	for _, c := range changes {
		if f, ok := s.fights[c.Key]; ok {
			fights[c.Key] = f
		}
	}
	s.fights = fights
}

// skipFights returns the changes that are not paused, and reports the paused changes.
func (s *stage[D, S]) skipFights(p *pass[D], changes []diff.Change[S]) []diff.Change[S] {
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
		switch {
		case f.until.IsZero():
			f.pause = min(max(2*f.pause, minFightPause), maxFightPause)
			f.until = p.now.Add(f.pause)
		case p.now.After(f.until):
			f.until = time.Time{}
			out = append(out, c) // one attempt after each pause
			continue
		}
		p.report.Fights = append(p.report.Fights, Problem{Kind: s.Name(), Key: c.Key, Err: ErrFight})
	}
	return out
}

// recordFight counts a change that was made.
func (s *stage[D, S]) recordFight(c diff.Change[S]) {
	sig := signature(c)
	f := s.fights[c.Key]
	if f == nil || f.signature != sig {
		f = &fight{signature: sig}
		s.fights[c.Key] = f
	}
	f.streak++
}
