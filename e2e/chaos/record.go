package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"hawser.dev/hawser/nodeagent/round/roundtest"
)

// recording writes down what agents see until its end, for tests that make the same rounds
// again; nothing without -record.
func (c *chaos) recording(ctx context.Context) (end func() error) {
	if c.record == "" {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	names := strings.Split(c.nodes, ",")
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			r, err := roundtest.Record(ctx, filepath.Join(c.labDir(), "nodes", name))
			if err == nil && len(r.Moments) == 0 {
				err = fmt.Errorf("record %s: its agent never answered", name)
			}
			if err == nil {
				err = r.Write(filepath.Join(c.record, fmt.Sprintf("chaos-%s-%s-%s.json.gz", c.variant.shape, c.variant.family, name)))
			}
			errs[i] = err
		})
	}
	return func() error {
		cancel()
		group.Wait()
		return errors.Join(errs...)
	}
}
