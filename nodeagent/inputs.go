package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/facts"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/nodeagent/watch"
	"hawser.dev/hawser/schema/fabric"
)

const (
	fabricFile = "fabric.json.gz"
	keysFile   = "keys.age"
	// saveRetry is how long a copy that could not be written waits for the next try.
	saveRetry = 2 * time.Second
)

// compiled is a fabric with the digest of its bytes.
type compiled struct {
	*fabric.Fabric
	digest string
}

// inputs are the files that an agent lives from. Each keeps its last good
// content in force, in memory and on disk.
type inputs struct {
	config  Config
	log     *slog.Logger
	changed func()

	mu       sync.Mutex
	fabric   document[compiled]
	keys     document[*fabric.Keys]
	facts    *facts.Source
	saved    *project.Facts // last good copy, used until facts were read once
	trouble  error          // a last good copy that could not be written
	resolver *resolver
}

func newInputs(config Config, log *slog.Logger, changed func()) *inputs {
	in := &inputs{config: config, log: log, changed: changed, facts: facts.Open(config.FactsDir), resolver: newResolver(changed)}
	in.fabric = document[compiled]{
		name:   "fabric",
		backup: config.statePath(fabricFile),
		read:   func() ([]byte, error) { return readParts(config.FabricDir, fabricFile) },
		decode: in.decodeFabric,
	}
	in.keys = document[*fabric.Keys]{
		name:   "keys",
		backup: config.statePath(keysFile),
		read:   func() ([]byte, error) { return os.ReadFile(filepath.Join(config.KeysDir, keysFile)) },
		decode: in.decodeKeys,
	}
	return in
}

// decodeFabric refuses a document that would take everything from this node
// without saying that this is meant.
func (in *inputs) decodeFabric(raw []byte) (compiled, error) {
	f, digest, err := fabric.Decode(raw)
	if err != nil {
		return compiled{}, err
	}
	own := f.Cluster(in.config.Cluster)
	if own == nil && !f.Decommission {
		return compiled{}, fmt.Errorf("fabric %s has no cluster %s and does not say decommission: true", digest, in.config.Cluster)
	}
	return compiled{Fabric: f, digest: digest}, nil
}

func (in *inputs) decodeKeys(sealed []byte) (*fabric.Keys, error) {
	keys, err := openKeys(sealed, in.config.Identity)
	if err != nil {
		return nil, err
	}
	if keys.Cluster != in.config.Cluster {
		return nil, fmt.Errorf("keys are those of cluster %s, not of %s", keys.Cluster, in.config.Cluster)
	}
	if gateway := in.gateway(); gateway != nil {
		if err := ownKeys(keys, in.config.KeysDir, gateway.Name); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// refresh reads everything again; what is broken stays as it was.
func (in *inputs) refresh(_ context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	fabricChanged, fabricTrouble := in.fabric.refresh()
	var keysTrouble error
	if in.gateway() != nil {
		// Only gateways hold keys; a worker without any is complete.
		_, keysTrouble = in.keys.refresh()
	}
	if fabricChanged && in.fabric.have {
		in.resolver.want(in.fabric.value.Fabric, in.config.Cluster)
	}
	in.trouble = errors.Join(fabricTrouble, keysTrouble, in.saveFacts())
}

func (in *inputs) gateway() *fabric.Gateway {
	if !in.fabric.have {
		return nil
	}
	own := in.fabric.value.Cluster(in.config.Cluster)
	if own == nil {
		return nil
	}
	return own.GatewayOn(in.config.Node)
}

// saveFacts keeps a copy of the facts for a start with a broken folder.
func (in *inputs) saveFacts() error {
	path := in.config.statePath("facts.json")
	state := in.facts.Current()
	if !state.Loaded {
		raw, err := os.ReadFile(path)
		var saved project.Facts
		if err == nil && json.Unmarshal(raw, &saved) == nil {
			in.saved = &saved
		}
		return nil
	}
	in.saved = nil
	raw, err := json.Marshal(state.Facts)
	if err != nil {
		return fmt.Errorf("save facts: %w", err)
	}
	have, err := os.ReadFile(path)
	if err == nil && string(have) == string(raw) {
		return nil
	}
	return writeAtomic(path, raw)
}

// now gives what is in force; not ok while something that is needed was never good.
func (in *inputs) now() (current, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c := current{facts: in.facts.Current()}
	if in.saved != nil && !c.facts.Loaded {
		c.facts.Facts, c.facts.Loaded = *in.saved, true
	}
	if !in.fabric.have || !c.facts.Loaded && !in.fabric.value.Decommission {
		return c, false
	}
	c.fabric, c.digest, c.keys = in.fabric.value.Fabric, in.fabric.value.digest, in.keys.value
	return c, true
}

// missing says what keeps the agent from its first pass.
func (in *inputs) missing() error {
	var errs []error
	for _, s := range in.states() {
		if s.Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", s.Name, s.Error))
		}
	}
	return errors.Join(errs...)
}

func (in *inputs) states() []status.InputState {
	in.mu.Lock()
	defer in.mu.Unlock()
	known := in.facts.Current()
	facts := status.InputState{Name: "facts", OK: known.Err == nil, From: "files"}
	if known.Err != nil {
		facts.Error = known.Err.Error()
	}
	if in.saved != nil {
		facts.From = "last good copy"
	}
	out := []status.InputState{in.fabric.state}
	if in.gateway() != nil {
		out = append(out, in.keys.state)
	}
	out = append(out, facts)
	if in.trouble != nil {
		out = append(out, status.InputState{Name: "state folder", Error: in.trouble.Error()})
	}
	return out
}

// run watches all folders until ctx ends.
func (in *inputs) run(ctx context.Context) error {
	reread := func() {
		in.refresh(ctx)
		in.changed()
	}
	reread()
	dirs := []watch.Dir{{Path: in.config.FabricDir, Changed: reread}, in.facts.Watched(reread)}
	if in.config.KeysDir != "" {
		dirs = append(dirs, watch.Dir{Path: in.config.KeysDir, Changed: reread})
	}
	var wait sync.WaitGroup
	wait.Go(func() { watch.Folders(ctx, in.polls, dirs...) })
	wait.Go(func() { in.resolver.run(ctx) })
	wait.Go(func() { in.keepSaving(ctx, reread) })
	wait.Wait()
	return nil
}

// polls says that folders are read again and again, as they cannot be watched.
func (in *inputs) polls(err error) {
	in.log.Warn("folders are polled", "err", err)
}

// keepSaving writes the copies again that could not be written, until ctx ends.
func (in *inputs) keepSaving(ctx context.Context, reread func()) {
	tick := time.NewTicker(saveRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if in.troubled() {
				reread()
			}
		}
	}
}

func (in *inputs) troubled() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.trouble != nil
}
