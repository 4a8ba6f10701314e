package change

import "hawser.dev/hawser/nodeagent/wire"

// message gives what messages say of this end as wire has it.
func (h *hold) wire(s said) wire.Tunnel {
	return wire.Tunnel{
		ID: h.hash(), Standing: s.standing, Proved: s.proved, Carries: s.uses, Leaving: s.leaving, Secondary: s.wished,
	}
}

func saidOf(t wire.Tunnel) said {
	return said{standing: t.Standing, proved: t.Proved, uses: t.Carries, leaving: t.Leaving, wished: t.Secondary}
}
