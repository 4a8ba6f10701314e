package input

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/schema/fabric/trust"
)

// trustFile is the file of the state directory with the trusted signers and accepted revisions.
const trustFile = "trust.json"

// signers decides which documents this agent accepts. Without pinned signers it accepts all.
type signers struct {
	pins    string                            // file of the pinned signers
	file    *statefile.File[trust.Remembered] // the copy in the state directory
	cluster string

	state  trust.Remembered
	pinned bool // there are or were pins

	// list lists the proofs of a kind that the HawserNodes of the cluster have; nil = the
	// cluster has none. They are listed once, for the first document of each kind.
	list    func(context.Context, trust.Kind) ([]string, error)
	listed  map[trust.Kind][]string
	wanted  map[trust.Kind]bool
	unread  trigger.Trigger // fires if proofs are needed
	listErr error
}

// Times of a list of HawserNodes.
const (
	listTimeout = 10 * time.Second
	listRetry   = 2 * time.Second
)

func newSigners(config Config) signers {
	return signers{
		pins: config.Trust, file: statefile.New[trust.Remembered](config.StateDir, trustFile), cluster: config.Cluster,
		listed: map[trust.Kind][]string{}, wanted: map[trust.Kind]bool{}, unread: trigger.New(),
	}
}

// check raises the accepted revision to the newest one in the proofs of other nodes, before the
// first document of a kind. It fails until the proofs are listed: without them a node with an empty
// state directory would accept any document that was ever signed.
func (s *signers) check(kind trust.Kind) error {
	if s.list == nil || slices.Contains(s.state.Checked, kind) {
		return nil
	}
	proofs, ok := s.listed[kind]
	if !ok {
		s.wanted[kind] = true
		s.unread.Fire()
		if s.listErr != nil {
			return fmt.Errorf("newest revision unknown: %w", s.listErr)
		}
		return errors.New("newest revision unknown: waiting for the HawserNodes of the cluster")
	}
	s.state = s.state.Check(kind, s.cluster, proofs)
	delete(s.listed, kind)
	return nil
}

// readProofs lists the needed proofs, and reports whether it has them.
func (in *Inputs) readProofs(ctx context.Context) bool {
	in.mu.Lock()
	wanted := slices.Collect(maps.Keys(in.signers.wanted))
	in.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var errs []error
	for _, kind := range wanted {
		proofs, err := in.signers.list(ctx, kind)
		errs = append(errs, err)
		in.mu.Lock()
		if err == nil {
			in.signers.listed[kind] = proofs
			delete(in.signers.wanted, kind)
		}
		in.signers.listErr = errors.Join(errs...)
		in.mu.Unlock()
	}
	return errors.Join(errs...) == nil
}

// RefreshOnce is Refresh for an agent that does not run. It also lists the HawserNodes that the
// first fabric and the first keys wait for.
func (in *Inputs) RefreshOnce(ctx context.Context) {
	in.Refresh()
	for range 2 { // the fabric names the gateways, which need keys
		in.readProofs(ctx)
		in.Refresh()
	}
}

// proofsOf returns the proofs of a kind that HawserNodes have.
func proofsOf(nodes []facts.HawserNode, kind trust.Kind) []string {
	var out []string
	for i := range nodes {
		proof := nodes[i].Status.FabricProof
		if kind == trust.Keys {
			proof = nodes[i].Status.KeysProof
		}
		if proof != "" {
			out = append(out, proof)
		}
	}
	return out
}

// readPins reads the pinned signers again. If the file is missing, the last pins stay: a deleted
// file must not disable the check.
func (s *signers) readPins() error {
	remembered := s.state
	if len(remembered.Pins) == 0 {
		var err error
		if remembered, err = s.file.Load(); err != nil {
			return fmt.Errorf("read trusted signers of the previous run: %w (remove the file to start with the pinned signers)", err)
		}
		s.state = remembered
	}
	s.pinned = len(s.state.Pins) > 0
	if s.pins == "" {
		return nil
	}
	raw, err := os.ReadFile(s.pins)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.pinned = true
	if err != nil {
		return fmt.Errorf("read pinned signers: %w", err)
	}
	pins, err := trust.ParsePins(raw)
	if err != nil {
		return fmt.Errorf("pinned signers %s: %w", s.pins, err)
	}
	next, err := trust.Pinned(pins, s.cluster, remembered)
	if err != nil {
		return fmt.Errorf("pinned signers %s: %w", s.pins, err)
	}
	if !next.Equal(s.state) {
		s.state = next
	}
	return nil
}

// admit returns an error unless a document is accepted.
func (s *signers) admit(kind trust.Kind, document, proof []byte) error {
	if err := s.readPins(); err != nil {
		return err
	}
	if !s.pinned {
		return nil
	}
	if err := s.check(kind); err != nil {
		return err
	}
	next, err := s.state.Admit(kind, s.cluster, document, proof)
	if err != nil {
		return err
	}
	if !next.Equal(s.state) {
		s.state = next
	}
	return nil
}

// save writes the state, unless that is on disk already.
func (s *signers) save() error {
	if len(s.state.Pins) == 0 {
		return nil
	}
	return s.file.Save(s.state)
}
