// Package input reads the inputs of an agent: the fabric and the keys from mounted files, the
// facts from the Kubernetes API or a directory, and the addresses of endpoints that are names. It
// accepts only documents that pinned signers signed. It keeps the last good content of each
// input in memory and in the state directory.
package input

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

const (
	fabricFile = "fabric.json.gz"
	fabricSig  = "fabric.sig"
	keysFile   = "keys.age"
	keysSig    = "keys.sig"
	factsFile  = "facts.json"
	// saveRetry is the time until the next attempt to write a copy. It is also the minimum time
	// between two copies of an input that changes often.
	saveRetry = 2 * time.Second
)

// compiled is a fabric with the digest of its encoding.
type compiled struct {
	*fabric.Fabric
	digest string
}

// Config has the locations of the inputs of a node.
type Config struct {
	Cluster, Node string // of this agent
	FabricDir     string // with fabric.json.gz, whole or in parts
	KeysDir       string // with keys.age, and private keys of this host; gateways only
	Identity      string // file with the cluster's age identity; gateways only
	Trust         string // file of pinned signers; empty = accept unsigned documents
	Kube          kube.Config
	FactsDir      string // with Kubernetes objects, if there is no API
	// HawserNodesDir has the HawserNodes of the cluster if there is no API; empty = none.
	HawserNodesDir string
	StateDir       string // for the last good copies
	Log            *slog.Logger
	Changed        func() // called when an input may have changed; it must not block
}

// Inputs are the inputs of an agent. It keeps the last good content of each, in memory and on disk.
// Inputs is safe for concurrent use.
type Inputs struct {
	config  Config
	log     *slog.Logger
	changed func()
	copy    *statefile.File[*model.Facts]
	unsaved trigger.Trigger // facts of the API changed

	dirSource *facts.DirSource // dirSource or api is nil
	api       *kube.FactsReader
	client    *kube.Client // of api

	mu          sync.Mutex
	signers     signers
	refused     map[string]string // the last logged reasons, by input
	fabric      cachedDocument[compiled]
	keys        cachedDocument[*fabric.Keys]
	own         ownKeys      // last good own keys of the gateway
	merged      *fabric.Keys // keys and own
	saved       *model.Facts // last good copy, used until all files were read once
	saveErr     error        // of the last good copies
	withHolders holderView
	resolver    *resolver
}

// Open returns the inputs. Before Refresh or Run it reads only the copy of the facts.
func Open(config Config) (*Inputs, error) {
	in := &Inputs{
		config: config, log: config.Log, changed: config.Changed,
		resolver: newResolver(net.DefaultResolver.LookupNetIP, config.Changed),
		copy:     statefile.New[*model.Facts](config.StateDir, factsFile), unsaved: trigger.New(),
		signers: newSigners(config),
		refused: map[string]string{},
	}
	if err := in.openFacts(); err != nil {
		return nil, err
	}
	switch {
	case in.client != nil:
		in.signers.list = in.client.Proofs
	case config.HawserNodesDir != "":
		in.signers.list = func(_ context.Context, kind trust.Kind) ([]string, error) {
			return proofsOf(in.dirSource.HawserNodes(), kind), in.dirSource.Current().Err
		}
	}
	in.fabric = fabricDocument(config, &in.signers)
	in.keys = cachedDocument[*fabric.Keys]{
		name:   "keys",
		backup: filepath.Join(config.StateDir, keysFile),
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

func (in *Inputs) openFacts() error {
	if !in.config.Kube.IsSet() {
		in.dirSource = facts.Open(in.config.FactsDir, in.config.HawserNodesDir)
		return nil
	}
	client, err := kube.Open(in.config.Kube)
	if err != nil {
		return err
	}
	in.client = client
	saved, _ := in.copy.Load() // an unreadable copy counts as missing
	in.api = kube.NewFactsReader(client, in.config.Cluster, in.config.Node, saved, in.log, func() {
		in.unsaved.Fire()
		in.changed()
	})
	return nil
}

// factsSnapshot returns the current facts.
func (in *Inputs) factsSnapshot() facts.State {
	if in.api != nil {
		return in.api.Current()
	}
	return in.dirSource.Current()
}

func (in *Inputs) decodeKeys(sealed []byte) (*fabric.Keys, error) {
	keys, err := openKeys(sealed, in.config.Identity)
	if err != nil {
		return nil, err
	}
	if keys.Cluster != in.config.Cluster {
		return nil, fmt.Errorf("the keys are for cluster %s, not for %s", keys.Cluster, in.config.Cluster)
	}
	return keys, nil
}

// Refresh reads all inputs again. An unreadable input keeps its last good content.
func (in *Inputs) Refresh() {
	in.mu.Lock()
	defer in.mu.Unlock()
	fabricChanged, fabricProblem := in.fabric.refresh()
	var keysProblem error
	if gateway := in.gateway(); gateway != nil {
		// Only gateways have keys.
		_, keysProblem = in.keys.refresh()
		own, err := readOwnKeys(in.config.KeysDir, gateway.Name)
		if err == nil {
			in.own = own
		} else if in.keys.state.OK {
			in.keys.state = status.InputState{Name: in.keys.name, From: in.keys.state.From, Error: err.Error()}
		}
		in.merged = in.own.replaceDerived(in.keys.value, gateway)
	}
	if f := in.current(); f != nil && in.api != nil && (fabricChanged || f != in.withHolders.factsFor) {
		in.withHolders.factsFor = f
		in.api.SetFabric(f)
	}
	// Log each refusal once, as it may be an attack: the status shows only the current one.
	for _, s := range []status.InputState{in.fabric.state, in.keys.state} {
		if s.Refused != in.refused[s.Name] && s.Refused != "" {
			in.log.Warn("document refused", "input", s.Name, "refused", s.Refused, "err", s.Error)
		}
		in.refused[s.Name] = s.Refused
	}
	in.saveErr = errors.Join(fabricProblem, keysProblem, in.signers.save(), in.saveFacts())
}

// holderView is the fabric with the holders of gateways selected by labels as their nodes.
type holderView struct {
	source, fabric *fabric.Fabric
	holders        map[string]string
	known          bool           // SetHolders was called
	factsFor       *fabric.Fabric // fabric that the facts were read for
}

// SetHolders sets the nodes that hold the gateways selected by labels, by gateway, and reads the
// inputs again: a node that became a gateway needs keys. Until the first call Current returns false
// if the cluster has such gateways.
func (in *Inputs) SetHolders(holders map[string]string) {
	in.mu.Lock()
	in.withHolders.holders, in.withHolders.known = maps.Clone(holders), true
	in.withHolders.fabric = nil
	in.mu.Unlock()
	in.Refresh()
	in.changed()
}

// current returns the current fabric with the holders of its gateways, nil if absent. The pointer
// changes only with the fabric or the holders.
func (in *Inputs) current() *fabric.Fabric {
	if !in.fabric.have {
		return nil
	}
	v := &in.withHolders
	if v.source != in.fabric.value.Fabric || v.fabric == nil {
		v.source = in.fabric.value.Fabric
		v.fabric = election.WithHolders(v.source, in.config.Cluster, v.holders)
	}
	return v.fabric
}

// ElectionView returns this node's view of the gateways selected by labels, and false while it
// has no fabric.
func (in *Inputs) ElectionView() (election.ClusterView, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.fabric.have {
		return election.ClusterView{}, false
	}
	return election.ViewOf(in.fabric.value.Fabric, in.config.Cluster, in.config.Node, in.factsSnapshot().Facts.Nodes), true
}

func (in *Inputs) gateway() *fabric.Gateway {
	f := in.current()
	if f == nil {
		return nil
	}
	own := f.Cluster(in.config.Cluster)
	if own == nil {
		return nil
	}
	return own.GatewayOn(in.config.Node)
}

// saveFacts saves a copy of the facts for a start without them. Facts of the API change more often
// than a disk should be written, so a goroutine saves them at intervals.
func (in *Inputs) saveFacts() error {
	if in.api != nil {
		return in.copy.Err()
	}
	state := in.dirSource.Current()
	if !state.Loaded {
		in.saved, _ = in.copy.Load() // an unreadable copy counts as missing
		return nil
	}
	in.saved = nil
	return in.copy.Save(&state.Facts)
}

// Current is a consistent snapshot of all inputs.
type Current struct {
	Fabric *fabric.Fabric
	Digest string // of the fabric
	Keys   *fabric.Keys
	Facts  model.Facts
}

// Current returns the last good inputs, and false while a required input was never good.
func (in *Inputs) Current() (Current, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	known := in.factsSnapshot()
	if in.saved != nil && !known.Loaded {
		known.Facts, known.Loaded = *in.saved, true
	}
	c := Current{Facts: known.Facts}
	if !in.fabric.have || !known.Loaded && !in.fabric.value.Decommission {
		return c, false
	}
	c.Fabric, c.Digest, c.Keys = in.current(), in.fabric.value.digest, in.merged
	return c, in.withHolders.known || c.Fabric == in.withHolders.source
}

// Resolved returns the addresses of names, by endpoint as in model.HostState.
func (in *Inputs) Resolved() map[string][]netip.Addr { return in.resolver.snapshot() }

// ResolveNames sets the names to look up, in lower case.
func (in *Inputs) ResolveNames(names []string) { in.resolver.setNames(names) }

// Resolve looks up all names now.
func (in *Inputs) Resolve() { in.resolver.resolveNow() }

// API returns the Kubernetes API that facts come from, and its client; both are nil without an API.
func (in *Inputs) API() (*kube.FactsReader, *kube.Client) { return in.api, in.client }

// StateFiles returns the files of the state directory that belong to one cluster.
func StateFiles() []string { return []string{fabricFile, keysFile, factsFile} }

// NotReadyReason returns the errors that prevent the first pass.
func (in *Inputs) NotReadyReason() error {
	var errs []error
	for _, s := range in.States() {
		if s.Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", s.Name, s.Error))
		}
	}
	return errors.Join(errs...)
}

// States returns the state of each input.
func (in *Inputs) States() []status.InputState {
	in.mu.Lock()
	defer in.mu.Unlock()
	known := in.factsSnapshot()
	facts := status.InputState{Name: "facts", OK: known.Err == nil, From: known.Source}
	switch {
	case known.Err != nil:
		facts.Error = known.Err.Error()
	case !known.Loaded && in.saved == nil:
		facts.OK, facts.Error = false, "not all objects were read yet"
	}
	if !known.DegradedSince.IsZero() {
		facts.Since = &known.DegradedSince
	}
	if in.saved != nil {
		facts.From = "last good copy"
	}
	out := []status.InputState{in.fabric.state}
	if in.gateway() != nil {
		out = append(out, in.keys.state)
	}
	out = append(out, facts)
	if in.saveErr != nil {
		out = append(out, status.InputState{Name: "state directory", Error: in.saveErr.Error()})
	}
	return out
}

// Proofs returns the proofs of the newest signed fabric and keys that this node acted on; empty
// if absent.
func (in *Inputs) Proofs() (fabric, keys string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.signers.state.Proofs[trust.Fabric], in.signers.state.Proofs[trust.Keys]
}

// Trust returns the pinned signers and the accepted revisions; nil without pinned signers.
func (in *Inputs) Trust() *status.Trust {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.signers.pinned {
		return nil
	}
	s := in.signers.state
	return &status.Trust{Signers: s.Signers, Fabric: s.Fabric, Keys: s.Keys}
}
