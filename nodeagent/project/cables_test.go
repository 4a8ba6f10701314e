package project_test

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/project"
)

// TestCablesBeside changes a pair's cable in the three steps that the agent takes:
// another one beside it, sent over, alone. Nothing that a packet needs meanwhile
// may change: a step adds objects, turns routes, or takes objects away.
func TestCablesBeside(t *testing.T) {
	t.Parallel()
	was := project.Cable{Driver: "wireguard", Own: 51820, Remote: 51820}
	tests := map[string]struct {
		is     project.Cable
		device string
	}{
		"driver":                 {project.Cable{Driver: "vxlan", Own: 51820, Remote: 51820}, "hw-vt4-51884"},
		"to IPsec":               {project.Cable{Driver: "ipsec"}, "ipsec0"},
		"port":                   {project.Cable{Driver: "wireguard", Own: 52820, Remote: 52820}, "hw-wg1-p52820"},
		"other ports of a range": {project.Cable{Driver: "wireguard", Own: 51820, Remote: 52820, Alt: true}, "hw-wg1-p51883"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, _ := readWorld(t, "testdata/lanes.txtar")
			in := w.inputs["g1/g1-a"]
			state := func(cables ...project.Cable) map[string]bool {
				in.Cables = map[string][]project.Cable{"g2/g2-a": cables}
				s, problems := project.State(in)
				for _, p := range problems {
					if strings.Contains(p.Path, "gateways") {
						t.Errorf("%s: %s", p.Code, p.Text)
					}
				}
				return linesOf(text(s))
			}
			one, beside, turned, other := state(was), state(was, tt.is), state(tt.is, was), state(tt.is)
			if plain := linesOf(text(w.states["g1/g1-a"])); len(minus(plain, one))+len(minus(one, plain)) > 0 {
				t.Errorf("the cable that the fabric says differs from none said: %v, %v", minus(plain, one), minus(one, plain))
			}
			if lost := widened(minus(one, beside)); len(lost) > 0 {
				t.Errorf("made beside, but lost %v", lost)
			}
			if !slices.ContainsFunc(minus(beside, one), func(l string) bool { return strings.HasPrefix(l, "link "+tt.device+" ") }) {
				t.Errorf("made beside, but gained no %s: %v", tt.device, minus(beside, one))
			}
			for _, line := range append(minus(beside, turned), minus(turned, beside)...) {
				if !strings.HasPrefix(line, "route 730") {
					t.Errorf("turned, and changed %s", line)
				}
			}
			if gained := widened(minus(other, turned)); len(gained) > 0 {
				t.Errorf("alone, but gained %v", gained)
			}
		})
	}
}

// minus gives the lines that only a has, sorted.
func minus(a, b map[string]bool) []string {
	var out []string
	for line := range a {
		if !b[line] {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// widened leaves out what follows the largest packet of all cables there are, and
// changes in place.
func widened(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "table ") || strings.HasPrefix(l, "link hw-vx0 ")
	})
}
