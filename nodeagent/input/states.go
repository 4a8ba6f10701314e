package input

import (
	"errors"
	"fmt"

	"hawser.dev/hawser/nodeagent/status"
)

// Missing says what keeps the agent from its first pass.
func (in *Inputs) Missing() error {
	var errs []error
	for _, s := range in.States() {
		if s.Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", s.Name, s.Error))
		}
	}
	return errors.Join(errs...)
}

// States says how it goes with each input.
func (in *Inputs) States() []status.InputState {
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

// Trust gives whose signatures count; nil while nobody's do.
func (in *Inputs) Trust() *status.Trust {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.signers.pinned {
		return nil
	}
	s := in.signers.state
	return &status.Trust{Signers: s.Signers, Fabric: s.Fabric, Keys: s.Keys,
		Approvers: s.Approvers.Keys, Threshold: s.Threshold}
}

func (in *Inputs) factsState() status.InputState {
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
