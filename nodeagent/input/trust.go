package input

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"hawser.dev/hawser/nodeagent/statefile"
	"hawser.dev/hawser/schema/fabric/trust"
)

// trustFile keeps, in the state folder, what the agent has to remember of signers
// and revisions.
const trustFile = "trust.json"

// signers decides which documents this agent acts on. Without pinned signers it
// takes what is delivered.
type signers struct {
	pins    string                       // file of the pinned signers
	file    *statefile.File[trust.State] // the copy in the state folder
	cluster string

	state  trust.State
	pinned bool // there are or were pins
}

func newSigners(config Config) signers {
	return signers{pins: config.Trust, file: statefile.New[trust.State](config.StateDir, trustFile), cluster: config.Cluster}
}

// look reads the pins again. That they are gone is not taken for consent to
// anything: the last ones stay in force.
func (s *signers) look() error {
	remembered := s.state
	if len(remembered.Pins) == 0 {
		var err error
		if remembered, err = s.file.Load(); err != nil {
			return fmt.Errorf("what was trusted before: %w (remove it to begin with the pinned signers again)", err)
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

// admit decides about a document.
func (s *signers) admit(kind trust.Kind, document, proof []byte) error {
	if err := s.look(); err != nil {
		return err
	}
	if !s.pinned {
		return nil
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
