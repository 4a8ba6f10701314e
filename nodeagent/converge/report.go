package converge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
)

// Change is one difference as a plan or a report shows it. Secrets are already
// replaced in it.
type Change struct {
	Kind   string       `json:"kind"`
	Op     diff.Op      `json:"op"`
	Key    string       `json:"key"`
	Origin string       `json:"origin,omitempty"` // topology path that causes it; empty for deletes
	Deltas []diff.Delta `json:"deltas,omitempty"`
}

// String gives the change on one line: "~ link hw-vx0 mtu: 1500 -> 1380".
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
		if d.Forces {
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

// Problem is one change that was not made, or a whole stage that could not be
// read or written (Key is empty then).
type Problem struct {
	Kind string
	Key  string
	Err  error
}

// Error gives kind, key and cause.
func (p Problem) Error() string {
	if p.Key == "" {
		return p.Kind + ": " + p.Err.Error()
	}
	return p.Kind + " " + p.Key + ": " + p.Err.Error()
}

// Unwrap gives the cause.
func (p Problem) Unwrap() error { return p.Err }

// Report says what Once did.
type Report struct {
	Digest   string         // of the desired state, as given
	At       time.Time      // when it began
	Took     time.Duration  //
	Passes   int            // 1 to 3
	Changed  []Change       // made
	Blocked  []Problem      // wait for something
	Failed   []Problem      // as of the last pass
	Fights   []Problem      // changes that somebody undoes again and again; left alone for a while
	Deferred []Problem      // changes that a Patient kind leaves to others for now
	Next     time.Time      // when the first of them is due; zero = there are none
	Drift    map[string]int // changes by kind that the desired state did not cause
	Objects  map[string]int // ours, by kind, before the changes of the last pass

	// Interrupted says that it only looked, and something was wanted anew meanwhile: stages
	// are left, and another round follows at once.
	Interrupted bool
}

// Clean reports whether everything is as it should be.
func (r Report) Clean() bool {
	return len(r.Blocked)+len(r.Failed)+len(r.Fights)+len(r.Deferred) == 0 && !r.Interrupted
}

// Err joins all failures.
func (r Report) Err() error {
	errs := make([]error, len(r.Failed))
	for i, p := range r.Failed {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// Texts gives problems as one line each.
func Texts(list []Problem) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = strings.ReplaceAll(item.Error(), "\n", "; ")
	}
	return out
}
