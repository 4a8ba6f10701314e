//go:build !linux

package main

import (
	"context"
	"errors"
)

// clusterPage is for pods, which run on Linux.
func (a *app) clusterPage(context.Context, uiFlags) error {
	return errors.New("--in-cluster: the page of a cluster is served in a pod, on Linux")
}
