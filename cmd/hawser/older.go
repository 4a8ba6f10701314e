package main

import (
	"fmt"

	"hawser.dev/hawser/reconciler/apply"
	"hawser.dev/hawser/render"
)

// tellOlder warns that agents are newer than this program.
func (a *app) tellOlder(states []apply.State) {
	_, _ = fmt.Fprint(a.err, olderThan(version, states))
}

// olderThan is the warning that agents are newer than a program of some version, whose
// answers may lack what they say; empty if none is.
func olderThan(own string, states []apply.State) string {
	newest := own
	for _, s := range states {
		for _, n := range s.Nodes {
			if render.Older(newest, n.Version) {
				newest = n.Version
			}
		}
	}
	if newest == own {
		return ""
	}
	return fmt.Sprintf("warning: there are agents of %s, and this is hawser %s, which may not know all that they say: use hawser %[1]s or a newer one\n", newest, own)
}
