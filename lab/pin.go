package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema/fabric/trust"
)

// pin writes whose signatures a new node trusts, once: what comes later it has to
// learn from what they sign, as nodes in the field do.
func (d *daemon) pin(n *node, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	root, err := reconciler.ReadRootKey(d.layout.RootKey(), "")
	if err != nil {
		return fmt.Errorf("pin signers on node %s: %w", n.id(), err)
	}
	today, _, err := root.Signers(d.topology.name, d.topology.epochs)
	if err != nil {
		return fmt.Errorf("pin signers on node %s: %w", n.id(), err)
	}
	var keys []string
	for _, s := range today {
		keys = append(keys, trust.Line(s.PublicKey()))
	}
	_, err = writeFile(path, []byte(trust.PinFile(d.topology.name, n.cluster, keys, trust.Approvers{})), 0o644)
	return err
}
