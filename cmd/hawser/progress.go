package main

import (
	"fmt"
	"time"
)

// quiet is how long a command may take before it says what it does.
const quiet = 2 * time.Second

// progress says on stderr what takes so long, when it does. The function that
// it gives ends it.
func (a *app) progress(what string) (done func()) {
	timer := time.AfterFunc(quiet, func() { _, _ = fmt.Fprintf(a.err, "%s...\n", what) })
	return func() { timer.Stop() }
}
