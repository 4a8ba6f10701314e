package diag

import "testing"

// TestOverflowIsOrdered checks that errors precede warnings in each run.
func TestOverflowIsOrdered(t *testing.T) {
	t.Parallel()
	for range 50 { // the order of a map is random
		list := Tally{Warning: MaxFindings + 2, Error: MaxFindings + 1}.Overflow()
		if len(list) != 2 || list[0].Severity != Error || list[1].Severity != Warning {
			t.Fatalf("%v", list)
		}
	}
}
