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

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/facts"
	"hawser.dev/hawser/nodeagent/kube"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

const (
	fabricFile = "fabric.json.gz"
	fabricSig  = "fabric.sig"
	keysFile   = "keys.age"
	keysSig    = "keys.sig"
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
	unsaved bell.Bell // facts of the API are new

	folder *facts.Folder // one of the two is nil
	api    *kube.Source
	client *kube.Client // of api

	mu       sync.Mutex
	signers  signers
	refused  map[string]string // the reasons that were logged last, by input
	fabric   document[compiled]
	keys     document[*fabric.Keys]
	own      ownKeys        // the last good ones
	held     *fabric.Keys   // both together
	saved    *project.Facts // last good copy, used until all files were read once
	trouble  error          // a last good copy that could not be written
	resolver *resolver
}

func newInputs(config Config, log *slog.Logger, changed func()) (*inputs, error) {
	in := &inputs{
		config: config, log: log, changed: changed, resolver: newResolver(changed),
		copy: factsCopy{path: config.statePath(factsFile)}, unsaved: bell.New(),
		signers: signers{pins: config.Trust, path: config.statePath(trustFile), cluster: config.Cluster},
		refused: map[string]string{},
	}
	if err := in.openFacts(); err != nil {
		return nil, err
	}
	in.fabric = document[compiled]{
		name:   "fabric",
		backup: config.statePath(fabricFile),
		read: func() (raw, proof []byte, err error) {
			if proof, err = readProof(config.FabricDir, fabricSig); err == nil {
				raw, err = readParts(config.FabricDir, fabricFile)
			}
			return raw, proof, err
		},
		admit:  func(raw, proof []byte) error { return in.signers.admit(trust.Fabric, raw, proof) },
		decode: in.decodeFabric,
	}
	in.keys = document[*fabric.Keys]{
		name:   "keys",
		backup: config.statePath(keysFile),
		read: func() (raw, proof []byte, err error) {
			if proof, err = readProof(config.KeysDir, keysSig); err == nil {
				raw, err = os.ReadFile(filepath.Join(config.KeysDir, keysFile))
			}
			return raw, proof, err
		},
		admit:  func(raw, proof []byte) error { return in.signers.admit(trust.Keys, raw, proof) },
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
		in.unsaved.Ring()
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
	if err := in.fitKeys(keys); err != nil {
		return nil, err
	}
	return keys, nil
}

// refresh reads everything again; what is broken stays as it was.
func (in *inputs) refresh(_ context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	fabricChanged, fabricTrouble := in.fabric.refresh()
	var keysTrouble error
	if gateway := in.gateway(); gateway != nil {
		// Only gateways hold keys; a worker without any is complete.
		_, keysTrouble = in.keys.refresh()
		own, err := readOwnKeys(in.config.KeysDir, gateway.Name)
		if err == nil {
			in.own = own
		} else if in.keys.state.OK {
			in.keys.state = status.InputState{Name: in.keys.name, From: in.keys.state.From, Error: err.Error()}
		}
		in.held = in.own.over(in.keys.value, gateway)
	}
	if fabricChanged && in.fabric.have {
		in.resolver.want(in.fabric.value.Fabric, in.config.Cluster)
		if in.api != nil {
			in.api.Follow(in.fabric.value.Fabric)
		}
	}
	in.logRefusals()
	in.trouble = errors.Join(fabricTrouble, keysTrouble, in.signers.save(), in.saveFacts())
}

// logRefusals logs each refusal once, as it may be an attack: the status tells only
// of what lasts.
func (in *inputs) logRefusals() {
	for _, s := range []status.InputState{in.fabric.state, in.keys.state} {
		if s.Refused != in.refused[s.Name] && s.Refused != "" {
			in.log.Warn("document refused", "input", s.Name, "refused", s.Refused, "err", s.Error)
		}
		in.refused[s.Name] = s.Refused
	}
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

// current is one consistent look at all inputs.
type current struct {
	fabric *fabric.Fabric
	digest string
	keys   *fabric.Keys
	facts  facts.State
	before *fabric.Shape // that the clusters leave; nil = none
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
	c.fabric, c.digest, c.keys = in.fabric.value.Fabric, in.fabric.value.digest, in.held
	return c, true
}
