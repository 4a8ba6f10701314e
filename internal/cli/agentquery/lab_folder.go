//go:build linux

package agentquery

import (
	"os"

	"hawser.dev/hawser/lab"
)

// LabFolder gives the folder of this machine's lab, whether there is one or not.
func LabFolder(flag string) (string, error) { return lab.DirFrom(flag, os.Getenv(lab.DirEnv)) }
