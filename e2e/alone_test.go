package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// scenarios gives those of testdata that measure how long connections stand still, or that
// do not.
func scenarios(t *testing.T, measure bool) testscript.Params {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	p := params("")
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "impact") == measure {
			p.Files = append(p.Files, file)
		}
	}
	return p
}

// TestAlone runs the scenarios that measure how long connections stand still, one after
// another, as no other test of the package runs meanwhile: beside two other labs agents and
// tunnels wait for the processor longer than what is measured.
func TestAlone(t *testing.T) {
	needs(t)
	p := scenarios(t, true)
	if deadline, ok := t.Deadline(); ok {
		p.Deadline = deadline
	}
	testscript.RunT(alone{t}, p)
}

// alone runs scenarios in their order; testscript would have each run beside others.
type alone struct{ *testing.T }

func (a alone) Parallel() {}

func (a alone) Verbose() bool { return testing.Verbose() }

func (a alone) Run(name string, f func(testscript.T)) {
	a.T.Run(name, func(t *testing.T) { f(alone{t}) })
}
