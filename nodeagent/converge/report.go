package converge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
)

// Change is one difference as plans and reports show it. It has no secrets.
type Change struct {
	Kind   string       `json:"kind"`
	Op     diff.Op      `json:"op"`
	Key    string       `json:"key"`
	Origin string       `json:"origin,omitempty"` // topology path that causes it; empty for deletes
	Deltas []diff.Delta `json:"deltas,omitempty"`
}

// String returns the change on one line: "~ link hw-vx0 mtu: 1500 -> 1380".
func (c Change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", c.Op, c.Kind, c.Key)
	for i, d := range c.Deltas {
		b.WriteString(map[bool]string{true: " ", false: ", "}[i == 0])
		switch c.Op {
		case diff.Create:
			fmt.Fprintf(&b, "%s: %s", d.Name, d.Want)
		case diff.Delete:
			fmt.Fprintf(&b, "%s: %s", d.Name, d.Have)
		default:
			fmt.Fprintf(&b, "%s: %s -> %s", d.Name, orNone(d.Have), orNone(d.Want))
		}
		if d.ForcesReplace {
			b.WriteString(" (forces replacement)")
		}
	}
	return b.String()
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// Problem is a change that was not made. If Key is empty, the whole stage could not be read or
// written.
type Problem struct {
	Kind string
	Key  string
	Err  error
}

// Error returns kind, key and cause.
func (p Problem) Error() string {
	if p.Key == "" {
		return p.Kind + ": " + p.Err.Error()
	}
	return p.Kind + " " + p.Key + ": " + p.Err.Error()
}

// Unwrap returns the cause.
func (p Problem) Unwrap() error { return p.Err }

// Report is the result of one round.
type Report struct {
	Digest   string         // of the desired state
	At       time.Time      // start
	Took     time.Duration  //
	Passes   int            // 1 to 3
	Changed  []Change       // changes that were made
	Blocked  []Problem      // changes that need another object first
	Failed   []Problem      // of the last pass
	Fights   []Problem      // changes that another writer reverts repeatedly; paused
	Deferred []Problem      // changes that a Deferrer leaves to other agents for now
	Next     time.Time      // when the first deferred change is due; zero = none
	Drift    map[string]int // changes by kind that the desired state did not cause
	Objects  map[string]int // objects of Hawser by kind, before the changes of the last pass

	// Interrupted means that a verify-only round stopped early because of a new trigger. Another
	// round follows at once.
	Interrupted bool
}

// Clean reports whether the observed state is the desired state.
func (r Report) Clean() bool {
	return len(r.Blocked)+len(r.Failed)+len(r.Fights)+len(r.Deferred) == 0 && !r.Interrupted
}

// Err returns all failures, joined.
func (r Report) Err() error {
	errs := make([]error, len(r.Failed))
	for i, p := range r.Failed {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// Texts returns each problem on one line.
func Texts(list []Problem) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = strings.ReplaceAll(item.Error(), "\n", "; ")
	}
	return out
}
