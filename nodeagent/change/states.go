package change

import (
	"slices"
	"time"
)

// State is what a pair is doing.
type State uint8

// The states of a pair. In each of them it takes packets on all tunnels that it holds.
const (
	Active      State = iota // it has one tunnel, and sends over that
	Proving                  // another tunnel stands, or is made, beside the one in use, and is asked over
	CuttingOver              // it is decided to send over another tunnel; the kernel does not yet
	Retiring                 // tunnels that are not needed stay until the other end has left them, too
)

// String gives the name as in code.
func (s State) String() string { return [...]string{"Active", "Proving", "CuttingOver", "Retiring"}[s] }

// row is one of a table of transitions: in one of the states, when something holds,
// something is done, and the state is another one.
type row[S ~uint8, On any] struct {
	from []S
	when string // for people
	is   func(On, time.Time) bool
	then string // for people; empty = nothing is done
	do   func(On, time.Time)
	to   S
}

// step takes the first row of a table that holds in a state. It reports false when none does.
func step[S ~uint8, On any](table []row[S, On], state S, on On, now time.Time) (to S, ok bool) {
	for i := range table {
		if r := &table[i]; slices.Contains(r.from, state) && r.is(on, now) {
			if r.do != nil {
				r.do(on, now)
			}
			return r.to, true
		}
	}
	return state, false
}

// transitions is the table of a pair. The move of an endpoint is in it too: it makes the
// secondary tunnel the next one, and then the wanted one again. docs/gateways.md shows the
// table.
func transitions() []row[State, *Pair] {
	return []row[State, *Pair]{
		{[]State{Active, Proving, Retiring}, "the kernel sends over another tunnel than the one to use, or that is not known after a start", (*Pair).behind, "", nil, CuttingOver},
		{[]State{CuttingOver, Proving, Retiring}, "the tunnel in use answers no more, and both ends proved another one", (*Pair).failed, "use that one", (*Pair).useOther, CuttingOver},
		{[]State{CuttingOver}, "the kernel sends over the tunnel to use", (*Pair).caughtUp, "", nil, Retiring},
		{[]State{Active, Proving, Retiring}, "the next tunnel is not there, and nothing is in its place", (*Pair).lacks, "make it beside the others", (*Pair).make, Proving},
		{[]State{Active, Retiring}, "the next tunnel is there, and not in use", (*Pair).differs, "", nil, Proving},
		{[]State{Proving}, "both ends proved the next tunnel", (*Pair).agreed, "use it", (*Pair).useNext, CuttingOver},
		{[]State{Proving}, "the other end sends over another tunnel only, which both proved, and it sorts first", (*Pair).parted, "use that one", (*Pair).join, CuttingOver},
		{[]State{Proving}, "the next tunnel is the one in use", (*Pair).arrived, "", nil, Retiring},
		{[]State{Active, Retiring}, "there is no history, and the link is down for 30 s", (*Pair).silent, "make the secondary tunnel beside it", (*Pair).call, Retiring},
		{[]State{Retiring}, "one tunnel is left", (*Pair).single, "", nil, Active},
	}
}

// Stage is how far this end has told the other one of a tunnel.
type Stage uint8

// The stages of a tunnel at one end.
const (
	Fresh    Stage = iota // the other end cannot use it yet: it never read that it works
	Offered               // the other end may have read that it works here
	Leaving               // messages say that this end gives it up
	Released              // the other end read that, and does not use it
	Gone                  // it is held no more
)

// String gives the name as in code.
func (s Stage) String() string {
	return [...]string{"Fresh", "Offered", "Leaving", "Released", "Gone"}[s]
}

// holding is a hold of a pair.
type holding struct {
	*hold
	pair *Pair
}

// stages is the table of each tunnel of a pair.
func stages() []row[Stage, holding] {
	return []row[Stage, holding]{
		{[]Stage{Fresh}, "a message said that it is proved, or in use", holding.told, "", nil, Offered},
		{[]Stage{Fresh}, "it is neither next nor in use", holding.unneeded, "", nil, Gone},
		{[]Stage{Offered}, "it is neither next nor in use", holding.unneeded, "say so", holding.leave, Leaving},
		{[]Stage{Leaving, Released}, "it is next, or in use, again", holding.needed, "say so no more", holding.stay, Offered},
		{[]Stage{Leaving}, "the other end read that, and does not use it", holding.free, "", holding.release, Released},
		{[]Stage{Released}, "the other end uses it again", holding.taken, "", nil, Leaving},
		{[]Stage{Released}, "5 s are over", holding.expired, "", nil, Gone},
	}
}
