//go:build !linux

package agentquery

import "cmp"

// LabFolder returns the folder of the agents' sockets of a lab. Labs run on Linux only, so the
// folder only exists if the user copied it.
func LabFolder(flag string) (string, error) { return cmp.Or(flag, "/run/hawser/lab"), nil }
