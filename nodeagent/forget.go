package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// forget empties the state folder of an agent that ends after it took everything
// down because it was told to: nothing of Hawser's is left on the node then, sealed
// keys least of all. Files that an agent does not write stay.
func (a *Agent) forget() error {
	v := a.shown.Load()
	if v == nil || v.node == nil || !v.node.decommission || !v.report.Clean() || v.input.Fabric.Cluster(v.input.Cluster) != nil {
		return nil
	}
	var errs []error
	for _, pattern := range stateFiles() {
		found, err := filepath.Glob(a.config.statePath(pattern))
		errs = append(errs, err)
		for _, path := range found {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("empty the state folder: %w", err)
	}
	return nil
}

// stateFiles are all that an agent writes into its state folder.
func stateFiles() []string {
	return []string{
		fabricFile, keysFile, factsFile, drainedFile, "paths.json", "shape.json", "heard.json", "ages.json", "sysctls.json", "cables.json",
		"endpoints.json", "ipsec", "hw-*.log",
	}
}
