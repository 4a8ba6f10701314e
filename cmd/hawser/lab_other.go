//go:build !linux

package main

import (
	"cmp"
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

func newLabCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "lab",
		Short:              "Run a whole clusterset on a Linux machine (not in this build)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("hawser lab needs Linux, because its nodes are network namespaces, and this is " + runtime.GOOS +
				": run it in a Linux machine, such as a virtual one")
		},
	}
}

// labFolder gives a folder of agents' sockets; none is there unless somebody brought it.
func labFolder(flag string) (string, error) { return cmp.Or(flag, "/run/hawser/lab"), nil }

func (g *collector) lab(context.Context, string) map[string]labNode { return nil }
