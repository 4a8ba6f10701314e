//go:build !linux

package ui

import (
	"context"
	"errors"

	"hawser.dev/hawser/internal/cli"
)

// clusterPage returns an error, because pods run on Linux only.
func clusterPage(context.Context, *cli.Env, uiFlags) error {
	return errors.New("--in-cluster: the page of a cluster is served in a pod, on Linux")
}
