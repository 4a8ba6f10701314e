//go:build linux

package agentquery

import (
	"os"

	"hawser.dev/hawser/lab"
)

// LabDir returns the directory of this machine's lab, even if no lab runs.
func LabDir(flag string) (string, error) { return lab.DirFrom(flag, os.Getenv(lab.DirEnv)) }
