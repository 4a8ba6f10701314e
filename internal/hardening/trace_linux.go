package hardening

import "golang.org/x/sys/unix"

func denyTracing() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
