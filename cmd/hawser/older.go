package main

import (
	"fmt"

	"hawser.dev/hawser/reconciler/apply"
	"hawser.dev/hawser/render"
)

// tellOlder warns that agents are newer than this program, whose answers may lack what they
// say.
func (a *app) tellOlder(states []apply.State) {
	newest := version
	for _, s := range states {
		for _, n := range s.Nodes {
			if render.Older(newest, n.Version) {
				newest = n.Version
			}
		}
	}
	if newest != version {
		_, _ = fmt.Fprintf(a.err, "warning: there are agents of %s, and this is hawser %s, which may not know all that they say: use hawser %[1]s or a newer one\n", newest, version)
	}
}
