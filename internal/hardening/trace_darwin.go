package hardening

import "golang.org/x/sys/unix"

// denyTracing prevents debuggers from attaching (ptrace(2), PT_DENY_ATTACH). On macOS only root may
// call task_for_pid.
func denyTracing() error { return unix.PtraceDenyAttach() }
