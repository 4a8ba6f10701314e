//go:build linux

package agentquery

import (
	"os"

	"hawser.dev/hawser/lab"
)

// LabFolder returns the directory of this machine's lab, even if no lab runs.
func LabFolder(flag string) (string, error) { return lab.DirFrom(flag, os.Getenv(lab.DirEnv)) }
