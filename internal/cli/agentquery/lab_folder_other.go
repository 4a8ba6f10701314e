//go:build !linux

package agentquery

import "cmp"

// LabFolder returns the folder of agents' sockets of a lab. Labs run on Linux only, so it
// exists only if it was copied.
func LabFolder(flag string) (string, error) { return cmp.Or(flag, "/run/hawser/lab"), nil }
