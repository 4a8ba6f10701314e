//go:build !linux

package lab

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

func NewLabCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "lab",
		Short:              "Run a clusterset on a Linux machine (not in this build)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("hawser lab needs Linux, because its nodes are network namespaces, and this is " + runtime.GOOS +
				": run it in a Linux machine, such as a virtual one")
		},
	}
}
