package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// scenarios returns the scenarios of testdata that measure outages, or all others.
func scenarios(t *testing.T, outages bool) testscript.Params {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	p := params("")
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "impact") == outages {
			p.Files = append(p.Files, file)
		}
	}
	return p
}

// TestOutages runs the scenarios that measure outages, one after another and while no other test
// of the package runs. With other labs running, agents wait longer for a processor than the
// outages last.
func TestOutages(t *testing.T) {
	needs(t)
	p := scenarios(t, true)
	if deadline, ok := t.Deadline(); ok {
		p.Deadline = deadline
	}
	testscript.RunT(sequential{t}, p)
}

// sequential is a testscript.T whose scripts run in order. A *testing.T would run them in parallel.
type sequential struct{ *testing.T }

func (s sequential) Parallel() {}

func (s sequential) Verbose() bool { return testing.Verbose() }

func (s sequential) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(sequential{t}) })
}
