package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

func (a *app) checkColor() error {
	switch a.color {
	case "auto", "always", "never":
		return nil
	}
	return fmt.Errorf("--color %q: it is auto, always or never", a.color)
}

// colored reports whether to write colours to w: on a terminal only, unless
// told otherwise (NO_COLOR: no-color.org).
func (a *app) colored(w io.Writer) bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(w)
}

// terminal reports whether somebody sits at a reader or writer.
func terminal(rw any) bool {
	f, ok := rw.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
