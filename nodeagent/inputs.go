package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/facts"
	"hawser.dev/hawser/nodeagent/kube"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/nodeagent/watch"
	"hawser.dev/hawser/schema/fabric"
)

const (
	fabricFile = "fabric.json.gz"
	keysFile   = "keys.age"
	// saveRetry is how long a copy that could not be written waits for the next try,
	// and how long one that is often new is left as it is.
	saveRetry = 2 * time.Second
)

// compiled is a fabric with the digest of its bytes.
type compiled struct {
	*fabric.Fabric
	digest string
}

// inputs are the files and the API that an agent lives from. Each keeps its last
// good content in force, in memory and on disk.
type inputs struct {
	config  Config
	log     *slog.Logger
	changed func()
	copy    factsCopy
	unsaved chan struct{} // size one: facts of the API are new

	folder *facts.Folder // one of the two is nil
	api    *kube.Source
	client *kube.Client // of api

	mu       sync.Mutex
	fabric   document[compiled]
	keys     document[*fabric.Keys]
	saved    *project.Facts // last good copy, used until all files were read once
	trouble  error          // a last good copy that could not be written
	resolver *resolver
}

func newInputs(config Config, log *slog.Logger, changed func()) (*inputs, error) {
	in := &inputs{
		config: config, log: log, changed: changed, resolver: newResolver(changed),
		copy: factsCopy{path: config.statePath(factsFile)}, unsaved: make(chan struct{}, 1),
	}
	if err := in.openFacts(); err != nil {
		return nil, err
	}
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
	return in, nil
}

func (in *inputs) openFacts() error {
	if !in.config.Kube.Wanted() {
		in.folder = facts.Open(in.config.FactsDir)
		return nil
	}
	client, err := kube.Open(in.config.Kube)
	if err != nil {
		return err
	}
	in.client = client
	in.api = kube.NewSource(client, in.config.Cluster, in.config.Node, in.copy.load(), in.log, func() {
		token(in.unsaved)
		in.changed()
	})
	return nil
}

// known gives the facts in force.
func (in *inputs) known() facts.State {
	if in.api != nil {
		return in.api.Current()
	}
	return in.folder.Current()
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
		if in.api != nil {
			in.api.Follow(in.fabric.value.Fabric)
		}
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

// saveFacts keeps a copy of the facts for a start without them. Those of the API
// change more often than a disk should be written: keepFacts looks after them.
func (in *inputs) saveFacts() error {
	if in.api != nil {
		return in.copy.trouble()
	}
	state := in.folder.Current()
	if !state.Loaded {
		in.saved = in.copy.load()
		return nil
	}
	in.saved = nil
	return in.copy.save(state.Facts)
}

// now gives what is in force; not ok while something that is needed was never good.
func (in *inputs) now() (current, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c := current{facts: in.known()}
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
	facts := in.factsState()
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

func (in *inputs) factsState() status.InputState {
	known := in.known()
	out := status.InputState{Name: "facts", OK: known.Err == nil, From: known.From}
	switch {
	case known.Err != nil:
		out.Error = known.Err.Error()
	case !known.Loaded && in.saved == nil:
		out.OK, out.Error = false, "not everything was read yet"
	}
	if !known.Since.IsZero() {
		out.Since = &known.Since
	}
	if in.saved != nil {
		out.From = "last good copy"
	}
	return out
}

// run watches all folders, and the API, until ctx ends.
func (in *inputs) run(ctx context.Context) error {
	reread := func() {
		in.refresh(ctx)
		in.changed()
	}
	reread()
	dirs := []watch.Dir{{Path: in.config.FabricDir, Changed: reread}}
	if in.folder != nil {
		dirs = append(dirs, in.folder.Watched(reread))
	}
	if in.config.KeysDir != "" {
		dirs = append(dirs, watch.Dir{Path: in.config.KeysDir, Changed: reread})
	}
	var wait sync.WaitGroup
	wait.Go(func() { watch.Folders(ctx, in.polls, dirs...) })
	wait.Go(func() { in.resolver.run(ctx) })
	wait.Go(func() { in.keepSaving(ctx, reread) })
	if in.api != nil {
		wait.Go(func() { in.api.Run(ctx) })
		wait.Go(func() { in.keepFacts(ctx) })
	}
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
