package input

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"hawser.dev/hawser/internal/dirwatch"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

// fabricDocument returns the fabric input of one cluster. It refuses a fabric that lacks the
// cluster without a decommission.
func fabricDocument(config Config, s *signers) cachedDocument[compiled] {
	return cachedDocument[compiled]{
		name:   "fabric",
		backup: filepath.Join(config.StateDir, fabricFile),
		read: func() (raw, proof []byte, err error) {
			if proof, err = readProof(config.FabricDir, fabricSig); err == nil {
				raw, err = readParts(config.FabricDir, fabricFile)
			}
			return raw, proof, err
		},
		admit: func(raw, proof []byte) error { return s.admit(trust.Fabric, raw, proof) },
		decode: func(raw []byte) (compiled, error) {
			f, digest, err := fabric.Decode(raw)
			if err != nil {
				return compiled{}, err
			}
			if f.Cluster(config.Cluster) == nil && !f.Decommission {
				return compiled{}, fmt.Errorf("fabric %s has no cluster %s and no decommission: true", digest, config.Cluster)
			}
			return compiled{Fabric: f, digest: digest}, nil
		},
	}
}

// FabricWatcher reads only the fabric, as an agent does: it accepts documents of pinned signers,
// and keeps the last good one. It is safe for concurrent use.
type FabricWatcher struct {
	config Config

	mu      sync.Mutex
	signers signers
	fabric  cachedDocument[compiled]
}

// OpenMounted returns a FabricWatcher for Cluster, FabricDir, Trust, StateDir and Log of a
// Config. It reads nothing before Run.
func OpenMounted(config Config) *FabricWatcher {
	m := &FabricWatcher{config: config, signers: newSigners(config)}
	m.fabric = fabricDocument(config, &m.signers)
	return m
}

// Run reads the fabric again whenever it changes, until ctx is done.
func (m *FabricWatcher) Run(ctx context.Context) {
	m.reread()
	dirwatch.Watch(ctx, func(err error) { m.config.Log.Warn("directories are polled", "err", err) }, watchedDirs(m.config, m.reread)...)
}

func (m *FabricWatcher) reread() {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.fabric.state.Refused
	_, err := m.fabric.refresh()
	if s := m.fabric.state; s.Refused != "" && s.Refused != was {
		m.config.Log.Warn("document refused", "input", s.Name, "refused", s.Refused, "err", s.Error)
	}
	if err := errors.Join(err, m.signers.save()); err != nil {
		m.config.Log.Warn("last good copy not written", "err", err)
	}
}

// Current returns the last good fabric and its digest; the fabric is nil before the first one. err
// is the error of the mounted fabric, nil if that is the last good one. The pointer changes only
// with the fabric.
func (m *FabricWatcher) Current() (f *fabric.Fabric, digest string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text := m.fabric.state.Error; text != "" {
		err = fmt.Errorf("fabric: %s", text)
	}
	if !m.fabric.have {
		return nil, "", errors.Join(err, errors.New("there is no fabric yet"))
	}
	return m.fabric.value.Fabric, m.fabric.value.digest, err
}
