//go:build !linux

package agentquery

import "cmp"

// LabDir returns the directory of the agents' sockets of a lab. Labs run on Linux only, so the
// directory only exists if the user copied it.
func LabDir(flag string) (string, error) { return cmp.Or(flag, "/run/hawser/lab"), nil }
